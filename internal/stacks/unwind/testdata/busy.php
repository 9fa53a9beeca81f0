<?php

function inner($n) { // inner
    $total = 0; // inner
    for ($i = 0; $i < $n; $i++) { // inner
        $total += sqrt($i); // inner
    }
    return $total; // inner
}

class Work {
    function middle($n) {
        return inner($n) + 1; // middle
    }
}

function outer() {
    for (;;) {
        (new Work)->middle(100000); // outer
    }
}

echo "ready\n";
outer(); // main
