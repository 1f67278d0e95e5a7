package stub_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/stub"
)

func TestFilesAreComplete(t *testing.T) {
	testkit.EmbedsPython(t, stub.Files, "nereid_devices", "nereid_template", "pb_stub", "triton_python_backend_stub")
	// Libraries that were compiled are embedded; "make build" compiles them before.
	for _, library := range []string{"pb_stub/_accelerator.abi3.so", "pb_stub/_accelerator_t.so"} {
		want, err := os.ReadFile(library)
		if errors.Is(err, fs.ErrNotExist) {
			testkit.NotCompiled(t)
		}
		if got, err := stub.Files.ReadFile(library); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: embedded are %d bytes (error %v), want %d", library, len(got), err, len(want))
		}
	}
}
