package servertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
)

// RegionFile is the name of the file that clients can register, and RegionBytes its
// size.
const (
	RegionFile  = "client"
	RegionBytes = 1 << 20
)

// WithRegions allows clients to register a file, whose path it returns, with copies in memory of
// blocks.
func WithRegions(t testing.TB, path *string) func(*server.Parts, *Blocks) {
	return func(parts *server.Parts, blocks *Blocks) {
		t.Helper()
		dir := t.TempDir()
		*path = filepath.Join(dir, RegionFile)
		if err := os.WriteFile(*path, make([]byte, RegionBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		if blocks.Account == nil {
			blocks.Account = budget.New(budget.Config{Limit: 1 << 30})
		}
		parts.Regions = clientshm.New(clientshm.Config{Enabled: true, Most: 4, Directory: dir, Account: blocks.Account, Allocate: blocks.Allocate})
		t.Cleanup(parts.Regions.Close)
	}
}
