package page

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

func TestPathsAreEscaped(t *testing.T) {
	for path, want := range map[string]route{
		"/": {page: "overview"}, "/models/a%2Fb": {page: "model", model: "a/b", version: infer.LatestVersion},
		"/models/versions/versions/3/infer": {page: "model", model: "versions", version: 3, action: "infer"},
		"/models/%zz":                       {}, "/models//infer": {}, "/models/a/versions/0": {}, "/models/a/load/": {}, "": {}, "*": {},
	} {
		got := routeOf(path)
		if got.page == "" {
			got = route{}
		}
		if got != want {
			t.Errorf("%q: got %+v, want %+v", path, got, want)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for got, want := range map[string]string{
		bytesText(0): "0 B", bytesText(1536): "1.50 KiB", bytesText(200 << 30): "200 GiB", countText(-1234567): "-1\u202f234\u202f567", countText(999): "999",
		durationText(0): "0 s", durationText(1234 * time.Nanosecond): "1.23 µs", durationText(15 * time.Minute): "15 min", durationText(50 * time.Hour): "2 days",
		string(fileURL("data:image/svg+xml;base64,x")): "", string(fileURL("data:text/html;base64,x")): "", string(fileURL("javascript:x")): "", string(fileURL("data:audio/wav;base64,x")): "data:audio/wav;base64,x", string(fileURL("data:image/png;base64,eA==")): "data:image/png;base64,eA==",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
