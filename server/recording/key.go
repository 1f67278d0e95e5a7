package recording

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/nereid-serving/nereid/server"
)

// keyFile is the file in a directory of records whose text marks requests as replays. Only readers
// of the records can read it, so no client can keep its requests out of the recording.
const keyFile = ".replay-key"

// keyForm is the form of a key, which is a header's value.
var keyForm = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// makeKey returns the key of a directory, and creates it if it is missing.
func makeKey(directory string) (string, error) {
	path := filepath.Join(directory, keyFile)
	key, err := readKey(path)
	if err == nil && key == "" || errors.Is(err, fs.ErrNotExist) {
		key = rand.Text()
		err = os.WriteFile(path, []byte(key), fileMode) // bound: 26 bytes
	}
	return key, err
}

// readKey returns "" if the file has no key.
func readKey(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64)) // bound: 64 bytes
	if err != nil || !keyForm.Match(text) {
		return "", err
	}
	return string(text), nil // bound: 64 bytes
}

// Header is server.ReplayHeader, for clients that replay.
const Header = server.ReplayHeader

// Key returns the value of server.ReplayHeader for requests of a recording, or "". Path is the
// directory of the records, the folder of a model in it, or a record.
func Key(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for range 3 {
		if key, err := readKey(filepath.Join(path, keyFile)); err == nil {
			return key
		}
		path = filepath.Dir(path)
	}
	return ""
}

// IsKey reports whether a value of server.ReplayHeader is the key of the recorder's directory.
func (r *Recorder) IsKey(value string) bool {
	return subtle.ConstantTimeCompare([]byte(value), []byte(r.key)) == 1 // bound: a header
}

// openRegular opens a regular file: a pipe would block.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
