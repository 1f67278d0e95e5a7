package testkit

import (
	"os"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit/leaks"
)

// Main runs the tests of a package and exits: with their status if they failed, else with 1 if they
// left something behind, else with 0.
func Main(m *testing.M) { os.Exit(leaks.Run(m)) }
