package http1

import "testing"

func TestReplyEncodingFollowsAcceptEncoding(t *testing.T) {
	for _, tt := range []struct {
		accept string
		want   Coding
	}{
		{"", Identity}, {"gzip", Gzip}, {"deflate", Deflate}, {"gzip, deflate", Gzip}, {"deflate,gzip", Deflate},
		{"gzip;q=0.5, deflate;q=0.6", Deflate}, {"gzip;q=0", Identity}, {"gzip;q=x", Identity}, {"*", Identity}, {"br, gzip;q=0.1", Gzip},
		{"identity, gzip", Identity}, {"GZIP", Identity}, {"gzip; q=0.5, identity;q=0.7", Identity},
	} {
		if got := replyEncoding(tt.accept); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.accept, encodingNames[got], encodingNames[tt.want])
		}
	}
}
