package providers_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/objectstore/providers"
)

// keyed serves a store with the given keys, whose content is the key. A page has at most most keys.
func keyed(t *testing.T, p providers.Protocol, keys []string, most int) objectstore.Location {
	t.Helper()
	slices.Sort(keys)
	known := make(map[string]bool, len(keys))
	for _, key := range keys {
		known[key] = true
	}
	return providers.Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		if !providers.IsListing(r) {
			key := strings.TrimPrefix(r.URL.Path, map[string]string{"s3": "/bucket/", "gs": "/download/storage/v1/b/bucket/o/", "as": "/bucket/"}[p.Scheme])
			if !known[key] {
				t.Errorf("asked for %q (%s)", key, r.URL.EscapedPath())
				p.Refusal(w, http.StatusNotFound, "NoSuchKey")
				return
			}
			w.Header().Set("ETag", map[string]string{"s3": `"v1"`, "as": "v1"}[p.Scheme])
			_, _ = io.WriteString(w, key)
			return
		}
		query := r.URL.Query()
		at, _ := strconv.Atoi(query.Get(map[string]string{"s3": "continuation-token", "gs": "pageToken", "as": "marker"}[p.Scheme]))
		prefix, next := query.Get("prefix"), ""
		var page []string
		for ; at < len(keys); at++ {
			if !strings.HasPrefix(keys[at], prefix) {
				continue
			}
			if len(page) == most {
				next = strconv.Itoa(at)
				break
			}
			page = append(page, keys[at])
		}
		_, _ = io.WriteString(w, pageOf(p.Scheme, page, next))
	})
}

// pageOf formats a page of a listing as stores of a scheme do.
func pageOf(scheme string, keys []string, next string) string {
	var b strings.Builder
	switch scheme {
	case "s3":
		fmt.Fprintf(&b, `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%v</IsTruncated><NextContinuationToken>%s</NextContinuationToken>`, next != "", next)
		for _, key := range keys {
			fmt.Fprintf(&b, `<Contents><Key>%s</Key><Size>%d</Size><ETag>"v1"</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>`, url.QueryEscape(key), len(key))
		}
		b.WriteString(`</ListBucketResult>`)
	case "gs":
		var items []map[string]string
		for _, key := range keys {
			items = append(items, map[string]string{"name": key, "size": strconv.Itoa(len(key)), "generation": "v1", "updated": "2026-01-02T03:04:05Z"})
		}
		text, _ := json.Marshal(map[string]any{"nextPageToken": next, "items": items})
		b.Write(text)
	case "as":
		b.WriteString(`<?xml version="1.0"?><EnumerationResults><Blobs>`)
		for _, key := range keys {
			b.WriteString(`<Blob><Name>`)
			_ = xml.EscapeText(&b, []byte(key))
			fmt.Fprintf(&b, `</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified><Etag>v1</Etag><Content-Length>%d</Content-Length></Properties></Blob>`, len(key))
		}
		fmt.Fprintf(&b, `</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, next)
	}
	return b.String()
}

// TestKeysOfAllKinds checks that keys that can be file names are listed and read, and all others
// are refused by name.
func TestKeysOfAllKinds(t *testing.T) {
	good := []string{
		"m/a b", "m/ ", "m/a%20b", "m/100%", "m/%2e%2e", "m/a+b", "m/a&b=c", "m/a?b", "m/a#b", "m/a;b:c", "m/ü", "m/u\u0308", "m/日本語", "m/😀", "m/\"quoted\"", "m/<xml>&amp;",
		"m/a\\b", "m/~", "m/*", "m/-", "m/...", "m/..a", "m/.hidden", "m/a.", "m/'", "m/[x]{y}", "m/file", "m/file/below", "m/$$", "m/@:,=", "m/" + strings.Repeat("n", 255), strings.Repeat("d/", 500) + "e",
	}
	bad := []string{"m//x", "m/../x", "m/./x", "m/x/..", "../m/x", "//m", "m/" + strings.Repeat("n", 256), strings.Repeat("d/", 600) + "e", "m/tab\there", "m/line\nbreak", "m/\u0085", "m/x//"}
	markers := []string{"m/", "m/folder/", "empty/"}
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		for _, path := range []string{"", "/models"} {
			var keys []string
			for _, key := range slices.Concat(good, bad, markers) {
				if p.Scheme == "as" && strings.Contains(key, "\u0085") { // XML 1.0 cannot contain it unescaped
					continue
				}
				keys = append(keys, strings.TrimPrefix(path+"/", "/")+key)
			}
			l := keyed(t, p, keys, 7)
			l = l.At(strings.TrimPrefix(path, "/"))
			b := providers.Opened(t, l)
			got := map[string]objectstore.Object{}
			err := b.List(t.Context(), "", func(o objectstore.Object) error {
				got[o.Key] = o
				return nil
			})
			var refused *objectstore.RefusedError
			if !errors.As(err, &refused) || refused.Count != len(keys)-len(good)-len(markers) {
				t.Errorf("%q: got error %v (%+v), want %d keys refused", path, err, refused, len(keys)-len(good)-len(markers))
			}
			if len(got) != len(good)+len(markers) {
				t.Errorf("%q: got %d keys %q, want %d", path, len(got), slices.Sorted(maps.Keys(got)), len(good)+len(markers))
			}
			for _, key := range good {
				whole := strings.TrimPrefix(path+"/", "/") + key
				if text, err := providers.Read(t.Context(), b, got[key]); err != nil || text != whole {
					t.Errorf("%q: got %q, %v", whole, text, err)
				}
			}
			for _, key := range markers {
				if o := got[strings.TrimSuffix(key, "/")]; !o.Directory || o.Size != 0 {
					t.Errorf("%q: got %+v, want a directory", key, o)
				}
			}
			if below := providers.Names(providers.List(t, b, "m/a b")); !slices.Equal(below, []string{"m/a b"}) {
				t.Errorf("below a prefix: got %q", below)
			}
		}
	})
}

// TestManyKeys lists 10,000 objects in pages of 1000 and expects each key once.
func TestManyKeys(t *testing.T) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("m%d/1/file%d", i%100, i)
	}
	providers.EachProtocol(t, func(t *testing.T, p providers.Protocol) {
		if got := providers.List(t, providers.Opened(t, keyed(t, p, slices.Clone(keys), 1000)), ""); len(got) != len(keys) {
			t.Errorf("got %d keys, want %d", len(got), len(keys))
		}
	})
}
