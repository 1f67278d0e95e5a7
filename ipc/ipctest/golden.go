// Package ipctest provides the golden frames of ipc/testdata to tests of packages that encode or
// decode bodies of frames.
package ipctest

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
)

// Life is the life in the headers of all golden frames.
const Life = 7

// -update writes the golden frames that the package under test encodes.
var update = flag.Bool("update", false, "write the golden frames that this package encodes")

func path(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(testkit.Root(t), "ipc", "testdata", name+".bin")
}

// Frame returns a golden frame, its header included.
func Frame(t testing.TB, name string) []byte {
	t.Helper()
	frame, err := os.ReadFile(path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// Body returns the body of a golden frame.
func Body(t testing.TB, name string) []byte {
	t.Helper()
	return Frame(t, name)[ipc.HeaderSize:]
}

// Want compares an encoded body with that of a golden frame, which must have this kind and id.
func Want(t testing.TB, name string, kind ipc.Kind, id uint64, body []byte) {
	t.Helper()
	frame := binary.LittleEndian.AppendUint32(nil, uint32(ipc.HeaderSize+len(body)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(kind))
	frame = binary.LittleEndian.AppendUint64(frame, Life)
	frame = append(binary.LittleEndian.AppendUint64(frame, id), body...)
	if *update {
		if err := os.WriteFile(path(t, name), frame, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want := Frame(t, name); !bytes.Equal(frame, want) {
		t.Errorf("%s: got\n%x, want\n%x", name, frame, want)
	}
}
