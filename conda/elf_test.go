package conda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestProgramsAreReadAsDebugElfReadsThem compares the readers on an interpreter, and on its loader
// and libc.
func TestProgramsAreReadAsDebugElfReadsThem(t *testing.T) {
	python, _ := realPython(t)
	p, file, err := openProgram(python)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	loader, err := filepath.EvalSymlinks(p.loader())
	if err != nil {
		t.Skipf("the interpreter has no loader: %v", err)
	}
	for _, path := range []string{python, loader, filepath.Join(filepath.Dir(loader), "libc.so.6")} {
		want, err := elf.Open(path)
		if err != nil {
			t.Skip(err) // a machine without glibc
		}
		defer want.Close()
		got, file, err := openProgram(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer file.Close()
		if got.machine != want.Machine || len(got.segments) != len(want.Progs) {
			t.Errorf("%s: got %v with %d segments, want %v with %d", path, got.machine, len(got.segments), want.Machine, len(want.Progs))
		}
		var libraries []string
		for _, at := range got.needed {
			libraries = append(libraries, got.name(at))
		}
		if wanted, err := want.ImportedLibraries(); err != nil || !slices.Equal(libraries, wanted) {
			t.Errorf("%s: got libraries %q, want %q (%v)", path, libraries, wanted, err)
		}
		newest := ""
		needs, _ := want.DynamicVersionNeeds()
		for _, need := range needs {
			for _, dep := range need.Needs {
				newest = newerVersion(newest, dep.Dep)
			}
		}
		if got := got.glibcNeeded(); got != newest {
			t.Errorf("%s: got need of glibc %q, want %q", path, got, newest)
		}
		newest = ""
		versions, _ := want.DynamicVersions()
		for _, v := range versions {
			newest = newerVersion(newest, v.Name)
		}
		if got := got.glibcDefined(); got != newest {
			t.Errorf("%s: got glibc %q, want %q", path, got, newest)
		}
	}
}

// hostile makes an ELF file whose sections, libraries and versions all have the same long name.
func hostile() []byte {
	const (
		sections = 1000
		entries  = 500
		long     = 1 << 20
	)
	var b bytes.Buffer
	add := func(v any) uint64 {
		at := uint64(b.Len())
		_ = binary.Write(&b, binary.LittleEndian, v)
		return at
	}
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	head := elf.Header64{Ident: [16]byte{'\x7f', 'E', 'L', 'F', 2, 1, 1}, Type: 3, Machine: uint16(machine), Version: 1, Phoff: 64, Phentsize: 56, Phnum: 3, Shentsize: 64, Shnum: sections, Shstrndx: 1}
	add(head)
	add(make([]byte, 3*56))
	interpreter := add([]byte("/bin/sh\x00"))
	names := add(bytes.Repeat([]byte("GLIBC_2."), long/8))
	needs := add([]uint32{1 | entries<<16, 0, 16, 0})
	for range entries {
		add([]uint32{0, 0, 0, 16})
	}
	dynamic := uint64(b.Len())
	for range entries {
		add(elf.Dyn64{Tag: int64(elf.DT_NEEDED)})
	}
	add([]elf.Dyn64{{Tag: int64(elf.DT_STRTAB), Val: names}, {Tag: int64(elf.DT_VERNEED), Val: needs}, {}})
	end := uint64(b.Len())
	head.Shoff = end
	for range sections {
		add(elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: names, Size: needs - names})
	}
	file := b.Bytes()
	b = bytes.Buffer{}
	add(head)
	add([]elf.Prog64{
		{Type: uint32(elf.PT_INTERP), Off: interpreter, Filesz: 8},
		{Type: uint32(elf.PT_LOAD), Filesz: end},
		{Type: uint32(elf.PT_DYNAMIC), Off: dynamic, Filesz: end - dynamic},
	})
	copy(file, b.Bytes())
	file[needs-1] = 0 // the only end of a name
	return file
}

// TestAHostileProgramTakesLittleMemory inspects a program of 1 MiB whose tables mention a name of
// 1 MiB a thousand times each.
func TestAHostileProgramTakesLittleMemory(t *testing.T) {
	root := Canonical(t)
	writeProgram(t, root+"/bin/python", hostile())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Inspect(EnvPath{Kind: Directory, Path: root})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("got %d bytes allocated (%v), want at most 1 MiB", took, err)
	}
}

// FuzzProgram reads arbitrary files, which must end.
func FuzzProgram(f *testing.F) {
	f.Add(hostile()[:2048])
	f.Fuzz(func(t *testing.T, content []byte) {
		p := &program{in: bytes.NewReader(content)}
		if p.read() != nil {
			return
		}
		if len(p.segments) > maxSegments || len(p.needed) > maxDynamic || len(p.loader()) > maxPath {
			t.Errorf("got %d segments, %d libraries, a loader of %d bytes", len(p.segments), len(p.needed), len(p.loader()))
		}
		p.glibcNeeded()
		p.glibcDefined()
	})
}
