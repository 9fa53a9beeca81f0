'use strict';

function inner(n) { // inner
  let total = 0; // inner
  for (let i = 0; i < n; i++) { // inner
    total += Math.sqrt(i * total + 1); // inner
  }
  return total; // inner
}

class Work {
  middle(n) {
    return inner(n) + 1; // middle
  }
}

function outer() {
  const work = new Work();
  for (;;) {
    work.middle(1000000); // outer
  }
}

require('fs').writeSync(1, 'ready\n');
outer(); // main
