package stub

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestFilesAreComplete(t *testing.T) {
	testkit.EmbedsPython(t, Files, "nereid_devices", "nereid_template", "pb_stub", "triton_python_backend_stub")
}
