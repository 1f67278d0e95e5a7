package plugin_test

import (
	"os"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

// TestMain runs this binary as a plugin if a server has started it.
func TestMain(m *testing.M) {
	if os.Getenv(ipc.PluginCookieKey) == ipc.PluginCookieValue {
		plugin.Serve(plugin.NewActor)
	}
	// By default, a process with the race detector sleeps for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}
