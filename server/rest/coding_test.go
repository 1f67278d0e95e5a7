package rest_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

func TestCompressedBodiesAreReadAndWritten(t *testing.T) {
	s := StartHTTP(t, rest.Config{MaxInputBytes: 100_000}, nil)
	pack := func(coding, body string) string {
		var b bytes.Buffer
		var z io.WriteCloser = gzip.NewWriter(&b)
		if coding == "deflate" {
			z = zlib.NewWriter(&b)
		}
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		return b.String()
	}
	head := `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[9000],"parameters":{"binary_data_size":9000}}],` + binaryOutput + "}"
	data := strings.Repeat("x", 9000)
	want := answerTo("id_uint8", "UINT8", "[9000]", `"parameters":{"binary_data_size":9000}`) + data
	length := fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head))
	for _, coding := range []string{"gzip", "deflate"} {
		got := s.Do(t, "POST", "/v2/models/id_uint8/infer", pack(coding, head+data), "Content-Encoding: "+coding, length, "Accept-Encoding: "+coding+";q=0.5, identity;q=0.1, *")
		if got.Status != 200 || got.Header.Get("Content-Encoding") != coding || got.Header.Get(inference.HeaderLengthName) != fmt.Sprint(len(want)-9000) {
			t.Fatalf("%s: got %.200s, headers %v", coding, got, got.Header)
		}
		var z io.Reader
		if coding == "gzip" {
			z, _ = gzip.NewReader(strings.NewReader(got.Body))
		} else {
			z, _ = zlib.NewReader(strings.NewReader(got.Body))
		}
		if body, err := io.ReadAll(z); err != nil || string(body) != want {
			t.Errorf("%s: got %.200q, %v", coding, body, err)
		}
	}
	bomb := pack("gzip", strings.Repeat(" ", 1<<20))
	for _, tt := range []struct{ name, coding, body, want string }{
		{"bomb", "gzip", bomb, "400 text/plain " + ErrorBody("Decompressed data size exceeds the maximum allowed value of 100000 bytes. Use --http-max-input-size to increase the limit.")},
		{"empty", "gzip", "", "400 text/plain " + ErrorBody("nothing to be decompressed")},
		{"corrupt", "gzip", "no gzip at all", "400 text/plain " + ErrorBody("compressed request body is corrupt or ends early")},
		{"cut", "deflate", pack("deflate", head)[:20], "400 text/plain " + ErrorBody("compressed request body is corrupt or ends early")},
		{"unknown", "br", head, "501 text/plain " + ErrorBody("Unsupported compression type")},
		{"capitals", "GZIP", head, "501 text/plain " + ErrorBody("Unsupported compression type")},
	} {
		got := s.Do(t, "POST", "/v2/models/id_uint8/infer", tt.body, "Content-Encoding: "+tt.coding)
		if got.String() != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if offer := got.Header.Get("Accept-Encoding"); (offer == "gzip, deflate") != (got.Status == 501) {
			t.Errorf("%s: Accept-Encoding is %q", tt.name, offer)
		}
	}
}
