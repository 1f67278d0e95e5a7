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
	f, err := elf.Open(real)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) {
			return problem(e.rebuild(""), "%s is not a Linux program (%v)", real, err)
		}
		if errors.Is(err, os.ErrPermission) {
			return nil // it may still be executable
		}
		return problem(e.rebuild(""), "%s is not a complete program (%v)", real, err)
	}
	defer f.Close()
	if want, ok := machines[runtime.GOARCH]; ok && f.Machine != want {
		return problem(e.rebuild(fmt.Sprintf("use an environment for %s", machineName(want))),
			"%s is a program for %s, and this machine is %s", real, machineName(f.Machine), machineName(want))
	}
	loader := loaderOf(f)
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
	line, ok := strings.CutPrefix(string(head[:n]), "#!")
	line, _, _ = strings.Cut(line, "\n")
	if words := strings.Fields(line); ok && len(words) > 0 {
		return words[0], true
	}
	return "", ok
}

// loaderOf returns the dynamic loader of a program.
func loaderOf(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz > 0 && p.Filesz < 4096 {
			path := make([]byte, p.Filesz)
			if _, err := p.ReadAt(path, 0); err == nil {
				return strings.TrimRight(string(path), "\x00")
			}
		}
	}
	return ""
}

// checkLibraries compares the glibc versions that the interpreter and its libpython need with the
// machine's.
func (e *Environment) checkLibraries(program string, f *elf.File, loader string) *Problem {
	if strings.Contains(loader, "ld-musl") {
		return nil
	}
	present := glibcOf(loader)
	if present == "" {
		return nil
	}
	files := []string{program}
	needed, _ := f.ImportedLibraries()
	for _, library := range needed {
		if strings.HasPrefix(library, "libpython") {
			files = append(files, filepath.Join(filepath.Dir(filepath.Dir(program)), "lib", library))
		}
	}
	for _, file := range files {
		if wanted := glibcWanted(file); compareVersions(wanted, present) > 0 {
			return problem(e.rebuild("run the server in a newer image (`ldd --version` says what an image has)"),
				"%s needs glibc %s, and this machine has glibc %s", file, wanted, present)
		}
	}
	return nil
}

const glibcPrefix = "GLIBC_"

// glibcOf returns the newest version that the libc.so.6 beside a loader defines.
func glibcOf(loader string) string {
	real, err := filepath.EvalSymlinks(loader)
	if err != nil {
		return ""
	}
	f, err := elf.Open(filepath.Join(filepath.Dir(real), "libc.so.6"))
	if err != nil {
		return ""
	}
	defer f.Close()
	versions, err := f.DynamicVersions()
	if err != nil {
		return ""
	}
	var names []string
	for _, v := range versions {
		names = append(names, v.Name)
	}
	return newestGlibc(names)
}

// glibcWanted returns the newest glibc version that a file needs.
func glibcWanted(file string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	needs, err := f.DynamicVersionNeeds()
	if err != nil {
		return ""
	}
	var names []string
	for _, need := range needs {
		for _, dep := range need.Needs {
			names = append(names, dep.Dep)
		}
	}
	return newestGlibc(names)
}

// newestGlibc returns the highest number among version names such as GLIBC_2.34.
func newestGlibc(names []string) string {
	var newest string
	for _, name := range names {
		if number, ok := strings.CutPrefix(name, glibcPrefix); ok && strings.HasPrefix(number, "2.") && compareVersions(number, newest) > 0 {
			newest = number
		}
	}
	return newest
}

// compareVersions compares numbers with dots.
func compareVersions(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }

func numbers(version string) (parts []int) {
	for _, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		parts = append(parts, n)
	}
	return parts
}
