package mirrortest

import (
	"context"
	"crypto/md5" //nolint:gosec // what stores tell
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"github.com/nereid-serving/nereid/objects"
)

// WithSums opens stores that tell the MD5 of each object, as an uploader to Azure leaves it. Package objects compares it. It is
// wrong for keys of which wrong says so.
func WithSums(open objects.Opener, wrong func(key string) bool) objects.Opener {
	return func(ctx context.Context, l objects.Location) (objects.Bucket, error) {
		connect := func(ctx context.Context, l objects.Location, _ objects.Credential) (objects.Client, error) {
			b, err := open(ctx, l)
			return telling{b, strings.TrimPrefix(l.Path+"/", "/"), wrong}, err
		}
		return objects.NewOpener(func(string) string { return "" }, connect)(ctx, l)
	}
}

// telling is an objects.Client.
type telling struct {
	bucket objects.Bucket
	path   string // with which the store's own keys begin
	wrong  func(key string) bool
}

// Page implements objects.Client.
func (c telling) Page(ctx context.Context, prefix, _ string, _ int) (page []objects.Entry, next string, err error) {
	err = c.bucket.List(ctx, strings.TrimPrefix(prefix, c.path), func(o objects.Object) error {
		page = append(page, objects.Entry{Key: c.path + o.Key, Size: o.Size, Modified: o.Modified, Version: o.Version, Directory: o.Directory})
		return nil
	})
	return page, "", err
}

// Read implements objects.Client.
func (c telling) Read(ctx context.Context, key string, o objects.Object, offset int64) (io.ReadCloser, error) {
	o.Key = strings.TrimPrefix(key, c.path)
	body, err := c.bucket.Open(ctx, o)
	if errors.Is(err, objects.ErrChanged) {
		return nil, objects.Cause{Reason: objects.ErrChanged, Name: "PreconditionFailed"}
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	rest := io.NopCloser(strings.NewReader(string(text[offset:])))
	if c.wrong(o.Key) {
		text = append(text, " damaged"...)
	}
	sum := md5.Sum(text) //nolint:gosec // what stores tell
	told, _ := objects.ParseSum("md5", base64.StdEncoding.EncodeToString(sum[:]))
	if offset > 0 {
		return rest, nil
	}
	return objects.WithSum(rest, told), nil
}

// Close implements objects.Client.
func (c telling) Close() { _ = c.bucket.Close() }
