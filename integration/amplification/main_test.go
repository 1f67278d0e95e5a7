package amplification

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == clientArgument {
		runClient()
		os.Exit(0)
	}
	if filepath.Base(os.Args[0]) == "nereid_"+hostedBackend {
		plugin.Serve(newEcho)
	}
	if filepath.Base(os.Args[0]) == "nereid_"+hostileBackend {
		if err := runHostile(); err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}
