package repository

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/copies"
)

// maxPathBytes bounds the path of a file, as the kernel does.
const maxPathBytes = 4096

// Uploads are the directories of models whose files came with a load request.
type Uploads struct {
	*copies.Workspace
	most int // files and directories of one
}

// NewUploads makes no directory yet. Removal errors are logged. An upload may have most files and
// directories.
func NewUploads(log zerolog.Logger, most int) *Uploads {
	return &Uploads{Workspace: copies.NewWorkspace("", log), most: most}
}

// openCopy opens the copy of a model that texts show as shown.
func openCopy(c *copies.Copy, shown string) (*Folder, error) {
	root, err := os.OpenRoot(c.Path())
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "failed to open directory %s: %s", shown, strerror(err))
	}
	return &Folder{root: root, inner: ".", path: c.Path(), shown: shown, owned: true}, nil
}

// Write makes a directory with the files, whose names are relative to it, and config as
// config.pbtxt. The caller is its user. Nothing is left after an error, which is Triton's text if
// Triton has one.
func (s *Uploads) Write(files map[string][]byte, config []byte) (*copies.Copy, error) {
	u, err := s.Make("")
	switch {
	case errors.Is(err, copies.ErrClosed):
		return nil, infer.Errorf(infer.Unavailable, "Server exiting")
	case err != nil:
		return nil, infer.Errorf(infer.Internal, "failed to create a directory for the files of requests: %v", err)
	}
	if err := fill(u.Path(), files, config, s.most); err != nil {
		u.Drop()
		return nil, err
	}
	return u, nil
}

// fill writes the files and then the configuration, over any file of its name.
func fill(directory string, files map[string][]byte, config []byte, most int) error {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return infer.Errorf(infer.Internal, "failed to open directory %s: %s", directory, strerror(err))
	}
	defer root.Close()
	names, err := targetPaths(directory, files, most)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		local := names[name]
		if parent := path.Dir(local); parent != "." {
			err := root.MkdirAll(parent, 0o700)
			if errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist) {
				return infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%s', directory has been created as a file", name)
			}
			if err != nil {
				return infer.Errorf(infer.Internal, "failed to create directory %s: %s", path.Join(directory, parent), strerror(err)) // bound: maxPathBytes
			}
		}
		if err := writeFile(directory, root, local, files[name]); err != nil {
			return err
		}
	}
	return writeFile(directory, root, configFile, config)
}

func writeFile(directory string, root *os.Root, local string, content []byte) error {
	err := root.WriteFile(local, content, 0o600)
	if err != nil {
		return infer.Errorf(infer.Internal, "failed to open binary file for write %s/%s: %s", directory, local, strerror(err))
	}
	return nil
}

// targetPaths returns the path of each file in directory. A leading slash in a name does not lead
// out: the name follows the directory's.
func targetPaths(directory string, files map[string][]byte, most int) (map[string]string, error) {
	inside := make(map[string]string, len(files)) // bound: the files, which are charged
	entries := make(map[string]bool)              // bound: most
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if len(directory)+len(name) >= maxPathBytes {
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%.64s...', its path has %d bytes, want less than %d", name, len(directory)+len(name)+1, maxPathBytes)
		}
		relative := strings.TrimLeft(name, "/")
		local := path.Clean(relative)       // bound: maxPathBytes
		shown := path.Join(directory, name) // bound: maxPathBytes
		switch {
		case relative != "" && !filepath.IsLocal(relative):
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter 'file:%s' with normalized path '%s' must stay within model directory.", name, shown)
		case local == "." || strings.HasSuffix(relative, "/"):
			return nil, infer.Errorf(infer.Internal, "failed to open binary file for write %s/%s: Is a directory", directory, relative)
		case strings.Contains(name, "\x00"):
			return nil, infer.Errorf(infer.InvalidArg, "Invalid file parameter %q, a name has no zero byte", "file:"+name)
		}
		for at := local; at != "." && !entries[at]; at = path.Dir(at) {
			entries[at] = true
		}
		if len(entries) > most {
			return nil, infer.Errorf(infer.InvalidArg, "the files of the request need more than %d files and directories", most)
		}
		inside[name] = local
	}
	return inside, nil
}
