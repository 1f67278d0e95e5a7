package cache

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// local is the name of the only implementation.
const local = "local"

// The texts are Triton's. It reads the size with the C++ library's stoull and
// passes it to an allocator of its own.
var (
	errNoSize = infer.Errorf(infer.InvalidArg, "Failed to initialize LocalCache: config didn't contain a valid 'size' field.")
	errNumber = infer.Errorf(infer.Internal, "Failed to initialize LocalCache: stoull")
	errMemory = infer.Errorf(infer.Internal, "Failed to initialize LocalCache: failed to allocate buffer")

	errTooSmall = infer.Errorf(infer.Internal, "Failed to initialize LocalCache: Could not initialize buffer in basic_managed_external_buffer constructor")
)

// ParseSettings reads the command line's settings, by cache name and key. directory is where other
// caches would be, limit the most bytes that may be used. The size is 0 if no cache is wanted. The
// errors, all *infer.Error, end the server's startup.
func ParseSettings(settings map[string]map[string]string, directory string, limit int64) (size int64, err error) {
	if len(settings) == 0 {
		return 0, nil
	}
	if len(settings) > 1 {
		return 0, infer.Errorf(infer.InvalidArg, "found multiple cache configurations, but only a single cache is currently supported")
	}
	own, ok := settings[local]
	if !ok {
		for name := range settings {
			return 0, infer.Errorf(infer.InvalidArg, "unable to find 'libtritoncache_%s.so' for cache. Searched: %s", name, directory)
		}
	}
	text, ok := own["size"]
	if !ok {
		return 0, errNoSize
	}
	n, err := parseUint64(text)
	switch {
	case err != nil:
		return 0, errNumber
	case n > uint64(max(limit, 0)):
		return 0, errMemory
	case n < MinSize:
		return 0, errTooSmall
	}
	return int64(n), nil
}

// parseUint64 reads a number like stoull: leading blanks, a sign, which wraps around, and digits;
// the rest is ignored.
func parseUint64(text string) (uint64, error) {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	if end := strings.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
		digits = digits[:end]
	}
	if digits == "" {
		return 0, errors.New("no digit")
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return math.MaxUint64, err
	}
	if negative {
		n = -n
	}
	return n, nil
}
