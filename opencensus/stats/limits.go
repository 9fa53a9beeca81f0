package stats

import (
	"time"

	"correlator/internal/host/share"
)

// Defaults of Options.
const (
	DefaultMaxBytes      = 1 << 20
	DefaultMaxMemory     = 64 << 20 // 150,000 series with two tags; a user can have the half
	defaultMaxMeasures   = 10_000
	DefaultMaxViews      = 10_000
	DefaultMaxSeries     = 2_000 // as OpenTelemetry's SDKs
	defaultMaxBoundaries = 4_096
)

// Lengths in bytes.
const (
	maxName  = 255  // of measures and tag keys, as clients have it; of views, as OpenTelemetry
	maxValue = 255  // of a tag: what clients permit
	maxText  = 1024 // of what clients do not limit; dashboards show less

	maxExemplar = 2 << 10 // that of a web request has 200 bytes
)

// Numbers. Those of a record, and of what a record can reach, bound the time that one takes: a
// message of a few bytes must not occupy what all users share for long.
const (
	maxTagKeys        = 32 // of a view; applications have fewer than 10
	maxViewsOfMeasure = 64 // of one user: one for each aggregation and set of tags that is of use
	maxTags           = 32 // of a record, and attachments
	maxMeasurements   = 256
	maxUpdates        = 512 // by a record
)

// conflictAge is the time without a registration after which a definition can be replaced. Workers
// with old code are gone by then: each would register it with its next request.
const conflictAge = 5 * time.Minute

// What a user has neither registered nor recorded for unusedAge is forgotten while the user has more than
// modestBytes: 2,000 series or so, more than most applications. Otherwise it would be kept for good whatever
// a client sends once. Looking for it takes a millisecond.
const (
	modestBytes = 1 << 20
	unusedAge   = 24 * time.Hour
	unusedLook  = time.Hour
)

// exemplarAge is how much the sender's clock may differ from ours for its time to be used.
const exemplarAge = 5 * time.Minute

// Bytes that are charged beside texts and boundaries: structs, entries of maps and slices as these
// grow, or what an encoded point has, if that is more.
const (
	userBytes     = 128
	measureBytes  = 256
	viewBytes     = 768
	seriesBytes   = 320
	bucketBytes   = 24 // a count and an exemplar's place; encoded, a count and a boundary
	exemplarBytes = 64
)

// Bytes that gathering allocates: messages with their values, and entries of maps and slices. Names
// are translated, and written in up to 5 ways.
const (
	gatheredFamilyBytes    = 1024
	gatheredNames          = 7
	gatheredKeyBytes       = 64
	gatheredKeys           = 2
	gatheredSeriesBytes    = 352
	gatheredLabelBytes     = 96
	gatheredHistogramBytes = 384
	gatheredBucketBytes    = 112
)

// maxWrittenBytes limits the page that what is gathered is written to, which repeats the labels of a
// series for each of its buckets. A server may hold a page for each of several scrapes: a usual one
// has some 100 KB.
const maxWrittenBytes = 8 << 20

// Bytes of a page: those of a line beside name and labels, and of a label beside its texts.
const (
	writtenLineBytes  = 96 // suffix, boundary, value; also what introduces a family
	writtenLabelBytes = 4
)

// user is a user of the host, and what is charged to it.
type user struct {
	uid             uint32
	bytes           int
	measures, views int
}

// budget is memory that users share, in bytes.
type budget struct {
	*share.Budget[uint32]
	users map[uint32]*user // those with bytes
}

func newBudget(bytes int) budget {
	return budget{share.NewBudget[uint32](bytes), make(map[uint32]*user)}
}

// user returns a user. It is known to the budget from its first take on.
func (b *budget) user(uid uint32) *user {
	if u := b.users[uid]; u != nil {
		return u
	}
	return &user{uid: uid}
}

// take charges bytes to a user, and reports whether there was room for them.
func (b *budget) take(u *user, n int) bool {
	if u.bytes == 0 {
		n += userBytes
	}
	if !b.Take(u.uid, n) {
		return false
	}
	u.bytes += n
	b.users[u.uid] = u
	return true
}

// give returns bytes that were taken.
func (b *budget) give(u *user, n int) {
	if u.bytes -= n; u.bytes == userBytes {
		n += userBytes
		u.bytes = 0
		delete(b.users, u.uid)
	}
	b.Give(u.uid, n)
}
