package demo

import (
	"os"
	"testing"

	"correlator/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
