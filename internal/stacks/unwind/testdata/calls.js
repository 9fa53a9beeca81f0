'use strict';
let calls = 0;
function first() { calls++; }
function second() { calls--; }

function callsFirst() {
  first(); // callsFirst
  calls ^= 1;
}

function callsSecond() {
  second(); // callsSecond
  calls ^= 2;
}

require('fs').writeSync(1, 'ready\n');
for (;;) {
  callsFirst();
  callsSecond();
}
