package server

import "testing"

func TestReplyEncoding(t *testing.T) {
	for _, tt := range []struct {
		accept string
		want   contentCoding
	}{
		{"", identity}, {"gzip", gzipped}, {"deflate", deflated}, {"gzip, deflate", gzipped}, {"deflate,gzip", deflated},
		{"gzip;q=0.5, deflate;q=0.6", deflated}, {"gzip;q=0", identity}, {"gzip;q=x", identity}, {"*", identity}, {"br, gzip;q=0.1", gzipped},
		{"identity, gzip", identity}, {"GZIP", identity}, {"gzip; q=0.5, identity;q=0.7", identity},
	} {
		if got := replyEncoding(tt.accept); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.accept, encodingNames[got], encodingNames[tt.want])
		}
	}
}
