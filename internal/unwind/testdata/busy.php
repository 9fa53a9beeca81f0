<?php
function inner($n) { // inner
  $total = 0; // inner
  for ($i = 0; $i < $n; $i++) { // inner
    $total += $i * $i % 7; // inner
  }
  return $total; // inner
}

class Work {
  function middle($n) {
    return inner($n); // middle
  }
}

function outer() {
  $work = new Work();
  while (true) {
    $work->middle(100000); // outer
  }
}

echo "ready\n";
outer(); // main
