package pyutils

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestFilesAreComplete(t *testing.T) {
	testkit.EmbedsPython(t, Files, ".", "c_python_backend_utils")
}
