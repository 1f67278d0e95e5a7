package conda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Bounds of an ELF file's tables. Real ones have a tenth.
const (
	maxSegments = 256
	maxDynamic  = 1024 // entries of the dynamic segment
	maxVersions = 4096 // records of needed and defined versions
	maxWord     = 128  // bytes of a library's or a version's name
)

// program is an ELF file as the kernel and the loader read it: by its segments. Package debug/elf
// trusts its input: it reads whole tables and copies a name each time that it is mentioned, so an
// archive of a few kilobytes could take all memory.
type program struct {
	in       io.ReaderAt
	order    binary.ByteOrder
	wide     bool // 64 bits
	machine  elf.Machine
	segments []segment // bound: maxSegments
	// Entries of the dynamic segment; addresses are those in memory.
	needed                 []uint64 // libraries: offsets in names. bound: maxDynamic
	names, needs, versions uint64
}

// segment is a part of the file.
type segment struct {
	kind                  elf.ProgType
	offset, address, size uint64
}

// errNoProgram reports that a file is no ELF file.
var errNoProgram = errors.New("it does not begin with ELF's magic number")

// openProgram reads the tables of an ELF file. The caller closes the file.
func openProgram(path string) (*program, *os.File, error) {
	file, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // a pipe does not stop it
	if err != nil {
		return nil, nil, err
	}
	p := &program{in: file}
	if err := p.read(); err != nil {
		file.Close()
		return nil, nil, err
	}
	return p, file, nil
}

func (p *program) read() error {
	var head [64]byte
	if n, err := p.in.ReadAt(head[:], 0); !bytes.HasPrefix(head[:n], []byte(elf.ELFMAG)) {
		return errNoProgram
	} else if n < 52 { // the length for 32 bits
		return err
	}
	p.wide, p.order = elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64, binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		p.order = binary.BigEndian
	}
	p.machine = elf.Machine(p.order.Uint16(head[18:]))
	at, sizes := uint64(p.order.Uint32(head[28:])), head[42:]
	if p.wide {
		at, sizes = p.order.Uint64(head[32:]), head[54:]
	}
	size, count := uint64(p.order.Uint16(sizes)), p.order.Uint16(sizes[2:])
	if count > maxSegments {
		return fmt.Errorf("it has %d segments", count)
	}
	for range count {
		var b [56]byte
		if err := p.fill(b[:p.word(32, 56)], at); err != nil {
			return err
		}
		s := segment{kind: elf.ProgType(p.order.Uint32(b[:]))}
		if p.wide {
			s.offset, s.address, s.size = p.order.Uint64(b[8:]), p.order.Uint64(b[16:]), p.order.Uint64(b[32:])
		} else {
			s.offset, s.address, s.size = uint64(p.order.Uint32(b[4:])), uint64(p.order.Uint32(b[8:])), uint64(p.order.Uint32(b[16:]))
		}
		p.segments = append(p.segments, s)
		at += size
	}
	return p.readDynamic()
}

// word returns one of two sizes, for 32 and for 64 bits.
func (p *program) word(narrow, wide int) int {
	if p.wide {
		return wide
	}
	return narrow
}

// fill reads all of b.
func (p *program) fill(b []byte, at uint64) error {
	n, err := p.in.ReadAt(b, int64(at)) // of a negative offset it returns an error
	if n == len(b) {
		return nil
	}
	return err
}

// find returns the first segment of a kind.
func (p *program) find(kind elf.ProgType) (segment, bool) {
	for _, s := range p.segments {
		if s.kind == kind {
			return s, true
		}
	}
	return segment{}, false
}

// readDynamic reads the entries of the dynamic segment.
func (p *program) readDynamic() error {
	dynamic, ok := p.find(elf.PT_DYNAMIC)
	if !ok {
		return nil
	}
	size := uint64(p.word(8, 16))
	for i := range min(dynamic.size/size, maxDynamic) {
		var b [16]byte
		if err := p.fill(b[:size], dynamic.offset+i*size); err != nil {
			return err
		}
		tag, value := uint64(p.order.Uint32(b[:])), uint64(p.order.Uint32(b[4:]))
		if p.wide {
			tag, value = p.order.Uint64(b[:]), p.order.Uint64(b[8:])
		}
		switch elf.DynTag(tag) {
		case elf.DT_NULL:
			return nil
		case elf.DT_NEEDED:
			p.needed = append(p.needed, value)
		case elf.DT_STRTAB:
			p.names = value
		case elf.DT_VERNEED:
			p.needs = value
		case elf.DT_VERDEF:
			p.versions = value
		}
	}
	return nil
}

// offset converts an address in memory to the offset in the file, or returns 0.
func (p *program) offset(address uint64) uint64 {
	for _, s := range p.segments {
		if s.kind == elf.PT_LOAD && address >= s.address && address-s.address < s.size {
			return s.offset + (address - s.address)
		}
	}
	return 0
}

// name returns a name in the table of names.
func (p *program) name(at uint64) string {
	var b [maxWord]byte
	n, _ := p.in.ReadAt(b[:], int64(p.offset(p.names)+at))
	name, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(name) // bound: maxWord
}

// chain calls see for records of that size, each of which has the distance to the following one at
// next. left counts all records of the file.
func (p *program) chain(at uint64, size, next int, left *int, see func(at uint64, record []byte)) {
	for at != 0 && *left > 0 {
		*left--
		var record [20]byte
		if p.fill(record[:size], at) != nil {
			return
		}
		see(at, record[:size])
		step := uint64(p.order.Uint32(record[next:]))
		if step == 0 {
			return
		}
		at += step
	}
}

// glibcNeeded returns the newest glibc version that the program needs.
func (p *program) glibcNeeded() (newest string) {
	left := maxVersions
	p.chain(p.offset(p.needs), 16, 12, &left, func(at uint64, need []byte) {
		p.chain(at+uint64(p.order.Uint32(need[8:])), 16, 12, &left, func(_ uint64, version []byte) {
			newest = newerVersion(newest, p.name(uint64(p.order.Uint32(version[8:]))))
		})
	})
	return newest
}

// glibcDefined returns the newest glibc version that the library has.
func (p *program) glibcDefined() (newest string) {
	left := maxVersions
	p.chain(p.offset(p.versions), 20, 16, &left, func(at uint64, definition []byte) {
		var first [4]byte // of its names: its own; the others are those of older versions
		if p.fill(first[:], at+uint64(p.order.Uint32(definition[12:]))) == nil {
			newest = newerVersion(newest, p.name(uint64(p.order.Uint32(first[:]))))
		}
	})
	return newest
}
