package providers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/objectstore"
)

// Protocol describes the protocol of one kind of store.
type Protocol struct {
	Scheme string
	// Page is a listing of one object of 10 bytes in version v1; Refusal writes an error with a
	// status and a name.
	Page    func(key string) string
	Refusal func(w http.ResponseWriter, status int, name string)
}

var Protocols = []Protocol{
	{"s3", func(key string) string {
		return `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key>` + key +
			`</Key><Size>10</Size><ETag>"v1"</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>`
	}, func(w http.ResponseWriter, status int, name string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no entry</Message></Error>", name)
	}},
	{"gs", func(key string) string {
		return `{"items": [{"name": "` + key + `", "size": "10", "generation": "v1", "updated": "2026-01-02T03:04:05Z"}]}`
	}, func(w http.ResponseWriter, status int, name string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"code": %d, "message": "%s: no entry"}}`, status, name)
	}},
	{"as", func(key string) string {
		return `<?xml version="1.0"?><EnumerationResults><Blobs><Blob><Name>` + key +
			`</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>v1</Etag><Content-Length>10</Content-Length></Properties></Blob></Blobs><NextMarker/></EnumerationResults>`
	}, func(w http.ResponseWriter, status int, name string) {
		w.Header().Set("x-ms-error-code", name)
		w.WriteHeader(status)
	}},
}

// IsListing reports whether a request is for a page rather than an object.
func IsListing(r *http.Request) bool {
	query := r.URL.Query()
	return query.Has("list-type") || query.Has("comp") || strings.HasPrefix(r.URL.Path, "/storage/v1/b/bucket/o") && !query.Has("alt")
}

// Serve runs a store and returns its location.
func Serve(t *testing.T, p Protocol, handler http.HandlerFunc) objectstore.Location {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return Locate(t, p.Scheme, server.Listener.Addr().String())
}

func Locate(t *testing.T, scheme, address string) objectstore.Location {
	t.Helper()
	setEnvironment(t, map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "the-secret",
		"STORAGE_EMULATOR_HOST": address, "AZURE_STORAGE_SERVICE_ENDPOINT": "http://" + address, "AZURE_STORAGE_KEY": "dGhlLXNlY3JldA==",
	})
	url := map[string]string{"s3": "s3://" + address + "/bucket", "gs": "gs://bucket", "as": "as://account/bucket"}[scheme]
	l, _, err := objectstore.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	l.Named = true
	return l
}

func EachProtocol(t *testing.T, tell func(t *testing.T, p Protocol)) {
	for _, p := range Protocols {
		t.Run(p.Scheme, func(t *testing.T) { tell(t, p) })
	}
}

func Opened(t *testing.T, l objectstore.Location) objectstore.Bucket {
	t.Helper()
	b, err := Open(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}
