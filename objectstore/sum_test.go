package objectstore_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/objectstore"
)

// sums are the checksums of "123456789" from the specifications.
var sums = map[string]string{
	"crc32": "cbf43926", "crc32c": "e3069283", "crc64nvme": "ae8b14860a799888", "md5": "25f9e794323b453885f5181f1b624d0b",
	"sha1": "f7c3bc1d808e04732adf679965ccc34ca7ae3441", "sha256": "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
	"sha512": "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
}

func sumOf(t *testing.T, kind string) objectstore.Sum {
	t.Helper()
	value, err := hex.DecodeString(sums[kind])
	if err != nil {
		t.Fatal(err)
	}
	sum, known := objectstore.ParseSum(kind, base64.StdEncoding.EncodeToString(value))
	if !known {
		t.Fatalf("%s is not known", kind)
	}
	return sum
}

// TestBodiesHaveTheSumThatTheStoreTells checks bodies with each kind of checksum, in one piece and
// resumed.
func TestBodiesHaveTheSumThatTheStoreTells(t *testing.T) {
	for kind := range sums {
		synctest.Test(t, func(t *testing.T) { bodiesHaveTheSum(t, kind) }) // skips the pauses before retries
	}
}

func bodiesHaveTheSum(t *testing.T, kind string) {
	for _, test := range []struct {
		name   string
		bodies []string // of successive requests; all but the last break off
		want   string
	}{
		{"whole", []string{"123456789"}, ""},
		{"resumed", []string{"1234", "56", "789"}, ""},
		{"begun anew", []string{"", "123456789"}, ""},
		{"damaged", []string{"12345678x"}, "ChecksumMismatch"},
		{"damaged before it was resumed", []string{"x234", "56789"}, "ChecksumMismatch"},
		{"damaged after that", []string{"1234", "5x789"}, "ChecksumMismatch"},
	} {
		s := &store{pages: func(string, string, int) ([]objectstore.Entry, string, error) {
			return []objectstore.Entry{{Key: "f", Size: 9, Version: "1"}}, "", nil
		}}
		s.read = func(_ string, _ objectstore.Object, offset int64) (io.ReadCloser, error) {
			body := io.NopCloser(strings.NewReader(test.bodies[s.readCalls-1]))
			if offset > 0 {
				return body, nil
			}
			return objectstore.WithSum(body, sumOf(t, kind)), nil
		}
		r, err := s.open(t, "s3://bucket", environment{}.get).Open(t.Context(), objectstore.Object{Key: "f", Size: 9, Version: "1"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		_ = r.Close()
		if test.want == "" {
			if err != nil || string(text) != "123456789" {
				t.Errorf("%s, %s: got %q, %v", kind, test.name, text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "the store reported "+sums[kind][:min(32, len(sums[kind]))]) || errors.Is(err, objectstore.ErrUnreachable) {
			t.Errorf("%s, %s: got error %v, want %s", kind, test.name, err, test.want)
		}
	}
}

func TestSumsThatAreNone(t *testing.T) {
	for value, kind := range map[string]string{"4waSgw==": "crc33", "": "crc32c", "4waS": "crc32c", "4waSgw==-3": "crc32c", "not base64": "md5"} {
		if _, known := objectstore.ParseSum(kind, value); known {
			t.Errorf("%q is taken for a %s", value, kind)
		}
	}
}
