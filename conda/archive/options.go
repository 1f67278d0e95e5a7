package archive

import (
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/budget"
	"github.com/rs/zerolog"
)

// Options configure an unpacking. The zero value is usable.
type Options struct {
	Limits   Limits
	Progress *Progress      // counts while Unpack runs; may be nil
	Charge   *budget.Charge // grows by the memory that Unpack takes, before it takes it; the caller settles it
	Log      zerolog.Logger // for bugs of this package, which end the unpacking and not the server
}

// Limits bound the result of an unpacking. A zero field has its default, from DefaultLimits.
type Limits struct {
	Files int64 // entries of any kind, and directories that no entry names
	Bytes int64 // content of all files together
	Depth int   // components of a name
	Ratio int64 // bytes unpacked for each byte of the archive; not looked at below 64 MiB
}

// DefaultLimits are far above real environments, and below harmful sizes.
//
//   - Files: the full Anaconda distribution has some 450,000 entries.
//   - Bytes: environments with CUDA and two frameworks have 15 GB.
//   - Depth: real names have up to 20 components, those of JavaScript packages more.
//   - Ratio: environments shrink to between a half and a tenth; gzip cannot exceed 1,032, while
//     zstd and xz compress zeros ten thousandfold.
var DefaultLimits = Limits{Files: 1_000_000, Bytes: 64 << 30, Depth: 64, Ratio: 100}

// WithDefaults returns l with the default in each field that is zero.
func (l Limits) WithDefaults() Limits {
	if l.Files == 0 {
		l.Files = DefaultLimits.Files
	}
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Depth == 0 {
		l.Depth = DefaultLimits.Depth
	}
	if l.Ratio == 0 {
		l.Ratio = DefaultLimits.Ratio
	}
	return l
}

// Validate names the first field that is negative.
func (l Limits) Validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{{"Files", l.Files}, {"Bytes", l.Bytes}, {"Depth", int64(l.Depth)}, {"Ratio", l.Ratio}} {
		if field.value < 0 {
			return fmt.Errorf("limit %s is %d, want a positive number, or 0 for its default", field.name, field.value)
		}
	}
	return nil
}

// Progress is the progress of one unpacking. Unpack adds to it; others read it at any time.
type Progress struct {
	Read    atomic.Int64 // bytes of the archive that were read, of its size
	Written atomic.Int64 // bytes of content that were written to files
	Files   atomic.Int64 // entries of any kind that were made, and directories that no entry names
}
