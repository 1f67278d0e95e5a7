package pyutils_test

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/pyutils"
)

func TestFilesAreComplete(t *testing.T) {
	testkit.EmbedsPython(t, pyutils.Files, ".", "c_python_backend_utils", "nereid")
}
