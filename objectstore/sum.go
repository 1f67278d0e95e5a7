package objectstore

import (
	"crypto/md5"  //nolint:gosec // stores report it
	"crypto/sha1" //nolint:gosec // likewise
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
)

// Sum is a checksum that a store reports for a whole object.
type Sum struct {
	name string
	hash func() hash.Hash
	want []byte
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	nvme       = crc64.MakeTable(0x9a6c9329ac4bc9b5)
)

// kindsOfSums are by the stores' names for them.
var kindsOfSums = map[string]func() hash.Hash{
	"crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"crc32c":    func() hash.Hash { return crc32.New(castagnoli) },
	"crc64nvme": func() hash.Hash { return crc64.New(nvme) },
	"md5":       md5.New,
	"sha1":      sha1.New,
	"sha256":    sha256.New,
	"sha512":    sha512.New,
}

// ParseSum reads a checksum of a kind, such as crc32c, in base64. It returns false for an unknown
// kind, and for a value that is not one of the kind, such as S3's checksums of parts.
func ParseSum(kind, value string) (Sum, bool) {
	made := kindsOfSums[kind]
	want, err := base64.StdEncoding.DecodeString(value) // bound: a header
	if made == nil || err != nil || len(want) != made().Size() {
		return Sum{}, false
	}
	return Sum{kind, made, want}, true
}

// WithSum returns a body with the checksum that the store reports for the object. A Client returns
// it for bodies from the first byte on: the reader of a Bucket compares it with all bytes,
// including those of resumed bodies.
func WithSum(body io.ReadCloser, sum Sum) io.ReadCloser { return summed{body, sum} }

type summed struct {
	io.ReadCloser
	sum Sum
}

// shortSum is the start of a sum, for texts.
func shortSum(sum []byte) string {
	const most = 16 // bytes
	if len(sum) > most {
		return hex.EncodeToString(sum[:most]) + "…"
	}
	return hex.EncodeToString(sum) // bound: 16
}

// check compares the sum with a hash. A difference is the object's fault, whose uploader may have
// stored a wrong sum, and not the store's: it has no reason.
func (s Sum) check(of hash.Hash) error {
	got := of.Sum(nil)
	if string(got) == string(s.want) {
		return nil
	}
	return Cause{Name: "ChecksumMismatch", Message: fmt.Sprintf("the received bytes have the %s %s, but the store reported %s", s.name, shortSum(got), shortSum(s.want))}
}
