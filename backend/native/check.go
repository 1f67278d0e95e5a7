package native

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
)

// check returns an error if the file cannot be a plugin. It does not start it.
func (p *program) check() error {
	refuse := func(code infer.Code, format string, args ...any) error {
		return p.refused(code, "cannot be used, the server's log has the reason", fmt.Sprintf(format, args...))
	}
	info, err := os.Stat(p.path)
	switch {
	case err != nil:
		return refuse(infer.NotFound, "cannot be read: %v", err)
	case !info.Mode().IsRegular():
		return refuse(infer.InvalidArg, "is not a file (%s)", info.Mode())
	}
	real, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return refuse(infer.NotFound, "cannot be read: %v", err)
	}
	if !inside(real, p.roots()) {
		return refuse(infer.InvalidArg, "is a link to '%s', outside of the repository and of the backends' directory: copy the file there", real)
	}
	if err := unix.Access(p.path, unix.X_OK); err != nil {
		return refuse(infer.InvalidArg, "is not executable (%s): chmod +x it, and let its file system be mounted without noexec", info.Mode())
	}
	file, err := os.Open(p.path)
	if err != nil {
		return nil //nolint:nilerr // it may be executable but not readable; running it will tell
	}
	defer file.Close()
	var start [4]byte
	n, _ := io.ReadFull(file, start[:])
	if head := start[:n]; !bytes.Equal(head, []byte(elf.ELFMAG)) && !bytes.HasPrefix(head, []byte("#!")) {
		return refuse(infer.InvalidArg, "begins with %q and is not a program: want an ELF executable, as go build makes it, or a script", head)
	}
	return nil
}

// refused returns the error of a plugin. Its text for clients has no path of the server.
func (p *program) refused(code infer.Code, told, detail string) *infer.Error {
	return &infer.Error{
		Code: code, Message: fmt.Sprintf("backend '%s': plugin '%s' %s", p.name, filepath.Base(p.path), told),
		Detail: fmt.Sprintf("backend '%s': plugin '%s' %s", p.name, p.path, detail),
	}
}

// inside reports whether a path without links lies in one of the directories.
func inside(real string, roots []string) bool {
	for _, directory := range roots {
		root, err := filepath.EvalSymlinks(directory)
		if err != nil {
			continue
		}
		if relative, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(relative) {
			return true
		}
	}
	return false
}

// machine returns the processor for which a program was built, or "" if that is unknown. It reads
// only the beginning of the file: elf.Open would read the names of all sections, which may be
// compressed and of any size.
func machine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	const field = 18 // where e_machine lies
	var head [field + 2]byte
	if _, err := io.ReadFull(file, head[:]); err != nil || string(head[:4]) != elf.ELFMAG {
		return ""
	}
	switch elf.Data(head[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		return elf.Machine(binary.LittleEndian.Uint16(head[field:])).String()
	case elf.ELFDATA2MSB:
		return elf.Machine(binary.BigEndian.Uint16(head[field:])).String()
	}
	return ""
}
