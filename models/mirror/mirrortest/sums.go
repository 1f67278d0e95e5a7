package mirrortest

import (
	"context"
	"crypto/md5" //nolint:gosec // what stores tell
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"github.com/nereid-serving/nereid/objectstore"
)

// WithSums opens stores that report the MD5 of each object, as uploads to Azure leave it. Package
// objectstore compares it. It is wrong for keys for which wrong returns true.
func WithSums(open objectstore.Opener, wrong func(key string) bool) objectstore.Opener {
	return func(ctx context.Context, l objectstore.Location) (objectstore.Bucket, error) {
		connect := func(ctx context.Context, l objectstore.Location, _ objectstore.Credential) (objectstore.Client, error) {
			b, err := open(ctx, l)
			return telling{b, strings.TrimPrefix(l.Path+"/", "/"), wrong}, err
		}
		return objectstore.NewOpener(func(string) string { return "" }, connect)(ctx, l)
	}
}

// telling is an objectstore.Client.
type telling struct {
	bucket objectstore.Bucket
	path   string // prefix of the store's own keys
	wrong  func(key string) bool
}

// Page implements objectstore.Client.
func (c telling) Page(ctx context.Context, prefix, _ string, _ int) (page []objectstore.Entry, next string, err error) {
	err = c.bucket.List(ctx, strings.TrimPrefix(prefix, c.path), func(o objectstore.Object) error {
		page = append(page, objectstore.Entry{Key: c.path + o.Key, Size: o.Size, Modified: o.Modified, Version: o.Version, Directory: o.Directory})
		return nil
	})
	return page, "", err
}

// Read implements objectstore.Client.
func (c telling) Read(ctx context.Context, key string, o objectstore.Object, offset int64) (io.ReadCloser, error) {
	o.Key = strings.TrimPrefix(key, c.path)
	body, err := c.bucket.Open(ctx, o)
	if errors.Is(err, objectstore.ErrChanged) {
		return nil, objectstore.Cause{Reason: objectstore.ErrChanged, Name: "PreconditionFailed"}
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
	told, _ := objectstore.ParseSum("md5", base64.StdEncoding.EncodeToString(sum[:]))
	if offset > 0 {
		return rest, nil
	}
	return objectstore.WithSum(rest, told), nil
}

// Close implements objectstore.Client.
func (c telling) Close() { _ = c.bucket.Close() }
