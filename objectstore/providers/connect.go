package providers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/nereid-serving/nereid/objectstore"
)

// Open opens a location with the credentials in the process's environment.
func Open(ctx context.Context, l objectstore.Location) (objectstore.Bucket, error) {
	return objectstore.NewOpener(os.Getenv, Connect)(ctx, l)
}

// Connect makes the client of a location's store.
func Connect(ctx context.Context, l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	return connector{stallTime, mostReply}.connect(ctx, l, c)
}

// connector makes clients.
type connector struct {
	stall time.Duration // without a byte: a connection fails
	reply int64         // bound of replies other than objects' bodies, in bytes
}

func (k connector) connect(ctx context.Context, l objectstore.Location, c objectstore.Credential) (objectstore.Client, error) {
	switch l.Scheme {
	case objectstore.S3:
		return k.connectS3(ctx, l, c)
	case objectstore.GCS:
		return k.connectGCS(l, c), nil
	}
	return k.connectAzure(l, c)
}

// sumsByCost are the kinds of checksums that stores report, the cheapest first.
var sumsByCost = []string{"crc32c", "crc32", "crc64nvme", "sha1", "sha256", "md5", "sha512"}

// withAnySum makes a body be compared with the cheapest checksum that the store reports for its
// whole object, by kind in base64.
func withAnySum(body io.ReadCloser, sums map[string]string) io.ReadCloser {
	for _, kind := range sumsByCost {
		if sum, known := objectstore.ParseSum(kind, sums[kind]); known {
			return objectstore.WithSum(body, sum)
		}
	}
	return body
}

// reasonOf returns the reason for an HTTP status.
func reasonOf(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return objectstore.ErrDenied
	case status == http.StatusNotFound:
		return objectstore.ErrAbsent
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		return objectstore.ErrChanged
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return objectstore.ErrUnreachable
	}
	return nil
}

// broken is the cause of a call without a complete answer. It takes the inner error of a
// *url.Error: the URL shows the request's target and nothing that the operator has written.
func broken(err error) objectstore.Cause {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return objectstore.Cause{Reason: objectstore.ErrUnreachable, Name: "ConnectionError", Message: err.Error()}
}
