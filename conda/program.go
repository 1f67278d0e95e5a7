package conda

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// machines are the ELF machines of the architectures that the server is built for.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "386": elf.EM_386, "arm": elf.EM_ARM,
	"riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "loong64": elf.EM_LOONGARCH,
}

// machineNames are the users' names for them.
var machineNames = map[elf.Machine]string{
	elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_386: "i686", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv", elf.EM_PPC64: "ppc64", elf.EM_S390: "s390x", elf.EM_LOONGARCH: "loongarch64",
}

func machineName(m elf.Machine) string {
	if name, ok := machineNames[m]; ok {
		return name
	}
	return m.String()
}

// checkProgram checks whether this machine and its C library can run the interpreter's ELF file.
// Scripts are left to the kernel.
func checkProgram(e *Environment) *Problem {
	real, err := filepath.EvalSymlinks(e.Python)
	if err != nil {
		return problem("", "%v", err)
	}
	if size, err := os.Stat(real); err == nil && size.Size() == 0 {
		return problem(e.rebuild(""), "%s is empty", real)
	}
	if interpreter, ok := interpreterOf(real); ok {
		if _, err := os.Stat(interpreter); errors.Is(err, os.ErrNotExist) {
			return problem(e.rebuild(""), "%s is a script for %q, which is not on this machine", real, interpreter)
		}
		return nil
	}
	f, file, err := openProgram(real)
	if err != nil {
		if errors.Is(err, errNoProgram) {
			return problem(e.rebuild(""), "%s is not a Linux program (%v)", real, err)
		}
		if errors.Is(err, os.ErrPermission) {
			return nil // it may still be executable
		}
		return problem(e.rebuild(""), "%s is not a complete program (%v)", real, err)
	}
	defer file.Close()
	if want, ok := machines[runtime.GOARCH]; ok && f.machine != want {
		return problem(e.rebuild(fmt.Sprintf("use an environment for %s", machineName(want))),
			"%s is a program for %s, and this machine is %s", real, machineName(f.machine), machineName(want))
	}
	loader := f.loader()
	if loader == "" {
		return nil // statically linked
	}
	if _, err := os.Stat(loader); err != nil {
		libc := "glibc"
		if strings.Contains(loader, "ld-musl") {
			libc = "musl"
		}
		return problem(e.rebuild("run the server in an image with "+libc),
			"%s was built for %s, whose loader %s is not on this machine", real, libc, loader)
	}
	return e.checkLibraries(real, f, loader)
}

// interpreterOf returns the program in the first line of a script.
func interpreterOf(path string) (interpreter string, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	head := make([]byte, 256) // as much as the kernel reads
	n, _ := io.ReadFull(f, head)
	text := string(head[:n]) // bound: 256
	line, ok := strings.CutPrefix(text, "#!")
	line, _, _ = strings.Cut(line, "\n")
	if words := strings.Fields(line); ok && len(words) > 0 { // bound: 256
		return words[0], true
	}
	return "", ok
}

// loader returns the dynamic loader of a program, "" if it has none.
func (p *program) loader() string {
	interpreter, ok := p.find(elf.PT_INTERP)
	if !ok {
		return ""
	}
	path := make([]byte, min(interpreter.size, maxPath))
	if p.fill(path, interpreter.offset) != nil {
		return ""
	}
	return strings.TrimRight(string(path), "\x00") // bound: maxPath
}

// checkLibraries compares the glibc versions that the interpreter and its libpython need with the
// machine's.
func (e *Environment) checkLibraries(path string, f *program, loader string) *Problem {
	if strings.Contains(loader, "ld-musl") {
		return nil
	}
	present := glibcOf(loader)
	if present == "" {
		return nil
	}
	wanted := f.glibcNeeded()
	if compareVersions(wanted, present) <= 0 {
		path = f.libpython(filepath.Join(filepath.Dir(filepath.Dir(path)), "lib"))
		wanted = glibcWanted(path)
	}
	if compareVersions(wanted, present) <= 0 {
		return nil
	}
	return problem(e.rebuild("run the server in a newer image (`ldd --version` shows the version in an image)"),
		"%s needs glibc %s, and this machine has glibc %s", path, wanted, present)
}

// libpython returns the path of the libpython that a program needs, in the given directory.
func (p *program) libpython(directory string) string {
	for _, at := range p.needed {
		if library := p.name(at); strings.HasPrefix(library, "libpython") && !strings.Contains(library, "/") {
			return filepath.Join(directory, library)
		}
	}
	return ""
}

const glibcPrefix = "GLIBC_"

// glibcOf returns the newest version that the libc.so.6 beside a loader defines.
func glibcOf(loader string) string {
	real, err := filepath.EvalSymlinks(loader)
	if err != nil {
		return ""
	}
	p, file, err := openProgram(filepath.Join(filepath.Dir(real), "libc.so.6"))
	if err != nil {
		return ""
	}
	defer file.Close()
	return p.glibcDefined()
}

// glibcWanted returns the newest glibc version that a file needs.
func glibcWanted(path string) string {
	p, file, err := openProgram(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	return p.glibcNeeded()
}

// newerVersion returns the newer of a number and a version's name, such as GLIBC_2.34.
func newerVersion(newest, name string) string {
	if number, ok := strings.CutPrefix(name, glibcPrefix); ok && strings.HasPrefix(number, "2.") && compareVersions(number, newest) > 0 {
		return number
	}
	return newest
}

// compareVersions compares numbers with dots.
func compareVersions(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }

func numbers(version string) (parts []int) { // bound: a name's parts, maxWord
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		parts = append(parts, n)
	}
	return parts
}
