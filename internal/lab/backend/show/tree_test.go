package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestTree(t *testing.T) {
	main := frame{name: "main", source: "Main.java", line: 1, method: true}
	serve := frame{name: "serve", source: "Main.java", line: 2, method: true}
	again := frame{name: "serve", source: "Main.java", line: 3, method: true}
	pay := frame{name: "pay", source: "Shop.java", line: 7, method: true}
	native := frame{name: "memcpy"}
	start := frame{name: "start_thread"}
	transactions := make(map[string]*transaction)
	add(transactions, "aa", context{}, stack{[]frame{pay, serve, main, start}, 60})
	add(transactions, "aa", context{}, stack{[]frame{native, pay, again, serve, main, start}, 30})
	add(transactions, "aa", context{}, stack{[]frame{native, start}, 10})
	add(transactions, "bb", context{}, stack{[]frame{pay, main}, 99})
	events := filepath.Join(t.TempDir(), "events")
	assert.NilError(t, os.WriteFile(events, []byte(`{"event":"ready","pid":1}
{"event":"served","trace_id":"bb","methods":{"main":5}}
{"event":"served","trace_id":"aa","methods":{"serve":1000000000,"pay":900000000}}
`), 0o600))
	var out strings.Builder
	assert.NilError(t, showHottest(&out, transactions, events))
	want := `  Of 2 transactions, trace aa has the most samples, 100:

  SAMPLES   SHARE      BY ITS OWN CLOCK  METHOD
       90  90.0 %                        main  Main.java:1
       90  90.0 %    1000.0 ms  100.0 %   serve  Main.java:2
       90  90.0 %     900.0 ms   90.0 %    pay  Shop.java:7
       30  30.0 %                           memcpy
       10  10.0 %                        (no method: work of the runtime itself, or walked by frame pointers)
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}

	err := showTree(&out, transactions["bb"], map[string]int64{"main": 2, "serve": 1})
	assert.Check(t, err != nil && strings.Contains(err.Error(), "serve"), "a method is missing: %v", err)
	add(transactions, "cc", context{}, stack{[]frame{pay, main}, 101})
	err = showHottest(&out, transactions, events)
	assert.Check(t, err != nil && strings.Contains(err.Error(), "cc"), "a trace that was not served: %v", err)
}
