package stub_test

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/stub"
)

func TestFilesAreComplete(t *testing.T) {
	testkit.EmbedsPython(t, stub.Files, "nereid_devices", "nereid_template", "pb_stub", "triton_python_backend_stub")
}
