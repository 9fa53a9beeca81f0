module correlator/testdata/golabels

go 1.22
