package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// Coding is a content coding of the protocol.
type Coding uint8

// The codings; Deflate is in the zlib format.
const (
	Identity Coding = iota
	Gzip
	Deflate
)

var encodingNames = [...]string{Identity: "identity", Gzip: "gzip", Deflate: "deflate"}

// String returns the name as it stands in headers.
func (c Coding) String() string { return encodingNames[c] }

// Coding returns the request's Content-Encoding. It is case-sensitive and does not understand
// lists.
func (r *Request) Coding() (c Coding, known bool) {
	value, _ := r.Header("Content-Encoding")
	switch value {
	case "", "identity":
		return Identity, true
	case "gzip":
		return Gzip, true
	case "deflate":
		return Deflate, true
	}
	return Identity, false
}

// AcceptedCoding chooses the coding of a reply by the request's Accept-Encoding.
func (r *Request) AcceptedCoding() Coding {
	accept, _ := r.Header("Accept-Encoding")
	return replyEncoding(accept)
}

// replyEncoding chooses from an Accept-Encoding header: the known coding of the highest weight, and
// of equal ones the first.
func replyEncoding(accept string) Coding {
	if accept == "" {
		return Identity
	}
	best, weight := Identity, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		name, params, weighted := strings.Cut(strings.Trim(one, " \t"), ";")
		coding := Identity
		switch name {
		case "gzip":
			coding = Gzip
		case "deflate":
			coding = Deflate
		case "identity":
		default:
			continue
		}
		q := 1.0
		if weighted {
			q = readWeight(params)
		}
		if q > weight {
			best, weight = coding, q
		}
	}
	return best
}

// readWeight reads "q=<number>" and ignores the rest.
func readWeight(params string) float64 {
	text, ok := strings.CutPrefix(strings.TrimLeft(params, " \t"), "q=")
	if !ok {
		return 0
	}
	end := 0
	for end < len(text) && (isDigit(text[end]) || text[end] == '.') {
		end++
	}
	q, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0
	}
	return q
}

// Inflater decompresses one body after another. It recognises gzip and zlib by their first bytes,
// whatever the header says, and stops at a limit.
type Inflater struct {
	buf     *bufio.Reader
	gzip    *gzip.Reader
	zlib    io.ReadCloser
	src     io.Reader // gzip or zlib, nil before the first byte
	limit   int64
	out     int64
	failure error
}

// Codecs reuses compressors and decompressors, which are large. The zero value is ready.
type Codecs struct {
	inflaters sync.Pool // of *Inflater
	gzips     sync.Pool // of *gzip.Writer
	zlibs     sync.Pool // of *zlib.Writer
}

// Inflater returns an Inflater that reads src and yields at most limit bytes.
func (c *Codecs) Inflater(src io.Reader, limit int64) *Inflater {
	z, ok := c.inflaters.Get().(*Inflater)
	if !ok {
		z = &Inflater{buf: bufio.NewReader(nil)}
	}
	z.buf.Reset(src)
	z.src, z.limit, z.out, z.failure = nil, limit, 0, nil
	return z
}

// Free returns an Inflater, which must not be used after that.
func (c *Codecs) Free(z *Inflater) {
	z.buf.Reset(nil)
	c.inflaters.Put(z)
}

// ErrNothingCompressed rejects an empty body with a Content-Encoding.
var ErrNothingCompressed = &BodyError{"nothing to be decompressed"}

// Read fails with a *BodyError for data that is corrupt, cut off, or larger
// than the limit when decompressed.
func (z *Inflater) Read(p []byte) (int, error) {
	if z.failure == nil && z.src == nil {
		z.failure = z.open()
	}
	if z.failure != nil {
		return 0, z.failure
	}
	n, err := z.src.Read(p)
	if z.out += int64(n); z.out > z.limit {
		n, err = 0, &BodyError{fmt.Sprintf(
			"Decompressed data size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", z.limit)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		z.failure = errInflate(err)
		return n, z.failure
	}
	z.failure = err
	return n, err
}

func errInflate(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	var refused *BodyError
	if errors.As(err, &refused) {
		return refused
	}
	return &BodyError{"compressed request body is corrupt or ends early"}
}

func (z *Inflater) open() error {
	magic, err := z.buf.Peek(2)
	if len(magic) == 0 {
		if errors.Is(err, io.EOF) {
			return ErrNothingCompressed
		}
		return err
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if z.gzip == nil {
			z.gzip = new(gzip.Reader)
		}
		z.src, err = z.gzip, z.gzip.Reset(z.buf)
		if err == nil {
			z.gzip.Multistream(false)
		}
	} else if z.zlib == nil {
		z.zlib, err = zlib.NewReader(z.buf)
		z.src = z.zlib
	} else {
		z.src, err = z.zlib, z.zlib.(zlib.Resetter).Reset(z.buf, nil)
	}
	if err != nil {
		return errInflate(err)
	}
	return nil
}

// Compress appends the parts, compressed as one, to dst.
func (c *Codecs) Compress(dst []byte, e Coding, parts ...[]byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	var z io.WriteCloser
	if e == Gzip {
		w, ok := c.gzips.Get().(*gzip.Writer)
		if !ok {
			w = gzip.NewWriter(nil)
		}
		defer c.gzips.Put(w)
		w.Reset(out)
		z = w
	} else {
		w, ok := c.zlibs.Get().(*zlib.Writer)
		if !ok {
			w = zlib.NewWriter(nil)
		}
		defer c.zlibs.Put(w)
		w.Reset(out)
		z = w
	}
	for _, part := range parts {
		if _, err := z.Write(part); err != nil {
			return dst, err
		}
	}
	if err := z.Close(); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}
