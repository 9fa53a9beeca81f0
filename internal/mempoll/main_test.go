package mempoll

import (
	"os"
	"testing"
	"time"

	"correlator/internal/testenv"
)

// deadline is how long anything may take that happens at once on an idle machine.
const deadline = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
