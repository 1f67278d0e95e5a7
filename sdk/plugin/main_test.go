package plugin

import (
	"os"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk/wire"
)

// TestMain makes this binary a plugin where a server starts it.
func TestMain(m *testing.M) {
	if os.Getenv(wire.CookieKey) == wire.CookieValue {
		Serve(newActor)
	}
	testkit.Main(m)
}
