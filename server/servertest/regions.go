package servertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/clientshm"
)

// RegionFile is the name of the file that clients of Regions can register, and RegionBytes its
// size.
const (
	RegionFile  = "client"
	RegionBytes = 1 << 20
)

// Regions returns a registry in which clients may register the file at path, with copies in memory
// of blocks. It is closed with the test.
func Regions(t testing.TB, blocks *Blocks) (registry *clientshm.Registry, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, RegionFile)
	if err := os.WriteFile(path, make([]byte, RegionBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if blocks.Account == nil {
		blocks.Account = budget.New(budget.Config{Limit: 1 << 30})
	}
	registry = clientshm.New(clientshm.Config{Enabled: true, Most: 4, Directory: dir, Account: blocks.Account, Allocate: blocks.Allocate})
	t.Cleanup(registry.Close)
	return registry, path
}
