package objectstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

func TestURLsAreReadAsByTriton(t *testing.T) {
	for _, test := range []struct {
		url  string
		want objectstore.Location // without Text
		err  string
	}{
		{"s3://bucket", objectstore.Location{Scheme: "s3", Bucket: "bucket"}, ""},
		{"s3://bucket/", objectstore.Location{Scheme: "s3", Bucket: "bucket"}, ""},
		{"s3://bucket/models", objectstore.Location{Scheme: "s3", Bucket: "bucket", Path: "models"}, ""},
		{"s3:////bucket//a///b//", objectstore.Location{Scheme: "s3", Bucket: "bucket", Path: "a/b"}, ""},
		{"s3://host/bucket", objectstore.Location{Scheme: "s3", Bucket: "host", Path: "bucket"}, ""}, // without a port, it is a bucket
		{"s3://bucket/a b/ü", objectstore.Location{Scheme: "s3", Bucket: "bucket", Path: "a b/ü"}, ""},
		{"s3://host:9000/bucket", objectstore.Location{Scheme: "s3", Endpoint: "http://host:9000", Bucket: "bucket"}, ""},
		{"s3://Host.lan:9000/bucket/a/b", objectstore.Location{Scheme: "s3", Endpoint: "http://Host.lan:9000", Bucket: "bucket", Path: "a/b"}, ""},
		{"s3://http://host:9000/bucket/a/", objectstore.Location{Scheme: "s3", Endpoint: "http://host:9000", Bucket: "bucket", Path: "a"}, ""},
		{"s3://https://10.0.0.1:443//bucket//a_b-c.d", objectstore.Location{Scheme: "s3", Endpoint: "https://10.0.0.1:443", Bucket: "bucket", Path: "a_b-c.d"}, ""},
		{"s3://", objectstore.Location{}, "Invalid argument: Invalid bucket name: ''"},
		{"s3:////", objectstore.Location{}, "Invalid argument: Invalid bucket name: '//'"},
		{"s3://https://", objectstore.Location{}, "Invalid argument: Invalid bucket name: ''"},
		{"s3://https://host/bucket", objectstore.Location{}, "Invalid argument: Invalid bucket name: 'https://host/bucket' (with an endpoint"},
		{"s3://host:9000/Bucket", objectstore.Location{}, "Invalid argument: Invalid bucket name: 'host:9000/Bucket' (with an endpoint"},
		{"s3://host:9000/bucket/a b", objectstore.Location{}, "Invalid argument: Invalid bucket name: 'host:9000/bucket/a b' (with an endpoint"},
		{"s3://bucket?region=eu-west-1", objectstore.Location{}, "Invalid argument: Invalid bucket name: 'bucket?…' (with an endpoint"},

		{"gs://bucket", objectstore.Location{Scheme: "gs", Bucket: "bucket"}, ""},
		{"gs://bucket/a//b/", objectstore.Location{Scheme: "gs", Bucket: "bucket", Path: "a//b"}, ""}, // the empty component is kept
		{"gs://", objectstore.Location{}, "Internal: No bucket name found in path: gs://"},
		{"gs:///a", objectstore.Location{}, "Internal: No bucket name found in path: gs:///a"},

		{"as://account/container", objectstore.Location{Scheme: "as", Account: "account", Bucket: "container"}, ""},
		{"as://account.blob.core.windows.net/container/a/b", objectstore.Location{Scheme: "as", Account: "account", Bucket: "container", Path: "a/b"}, ""},
		{"as://account/container/a/?sv=2024&sig=xyz", objectstore.Location{Scheme: "as", Account: "account", Bucket: "container", Path: "a"}, ""},
		{"as://account/container?sig=xyz", objectstore.Location{Scheme: "as", Account: "account", Bucket: "container"}, ""},
		{"as://account", objectstore.Location{}, "Internal: Invalid azure storage path: as://account"},
		{"as://account/", objectstore.Location{}, "Internal: Invalid azure storage path: as://account/"},
		{"as:///container", objectstore.Location{}, "Internal: Invalid azure storage path: as:///container"},
		{"as://evil.example#/container", objectstore.Location{}, "Internal: Invalid azure storage path: as://evil.example#/container (the account"},
		{"as://account.blob.core.chinacloudapi.cn/c", objectstore.Location{}, "Internal: Invalid azure storage path: as://account.blob.core.chinacloudapi.cn/c (the account"},
		{"gs://bucket/a\x00b", objectstore.Location{}, "Invalid argument: Invalid bucket name: 'gs://bucket/a?b' (the URL"},
		{"s3://bucket/" + strings.Repeat("a", 5000), objectstore.Location{}, "Invalid argument: Invalid bucket name: 's3://bucket/aaa"},
	} {
		got, cloud, err := objectstore.Parse(test.url)
		if !cloud {
			t.Errorf("%q is taken for a local path", test.url)
		}
		if test.err != "" {
			if err == nil || !strings.HasPrefix(infer.AsError(err).Status(), test.err) {
				t.Errorf("%q: got error %v, want %q", test.url, err, test.err)
			}
			continue
		}
		test.want.Text = test.url
		if err != nil || got != test.want {
			t.Errorf("%q: got %#v, %v; want %#v", test.url, got, err, test.want)
		}
	}
}

func TestSpellingsOfOneLocationAreTheSame(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"s3://bucket/models", "s3://bucket//models/", true},
		{"s3://host:9000/bucket", "s3://http://host:9000/bucket/", true},
		{"as://account/container/m?sig=a", "as://account.blob.core.windows.net/container/m/?sig=b", true},
		{"gs://bucket", "gs://bucket/", true},
		{"gs://bucket/a", "gs://bucket/b", false},
		{"s3://bucket/a", "gs://bucket/a", false},
		{"s3://host:9000/bucket", "s3://https://host:9000/bucket", false},
	} {
		a, _, errA := objectstore.Parse(test.a)
		b, _, errB := objectstore.Parse(test.b)
		if errA != nil || errB != nil || a.Same(b) != test.want {
			t.Errorf("%s and %s: got %v, %v, %v; want %v", test.a, test.b, a.Same(b), errA, errB, test.want)
		}
	}
}

func TestOtherPathsAreLocal(t *testing.T) {
	for _, path := range []string{"", "/models", "models", "s3:/bucket", "S3://bucket", "http://host/bucket", "file:///models", "./s3://bucket", "s3a://bucket"} {
		if _, cloud, err := objectstore.Parse(path); cloud || err != nil {
			t.Errorf("%q: got cloud %v, error %v, want a local path", path, cloud, err)
		}
	}
}

func TestTextsHaveNoSecret(t *testing.T) {
	for url, want := range map[string]string{
		"as://account/container/a?sv=1&sig=SECRET":       "as://account/container/a?…",
		"s3://id:SECRET@host:9000/bucket/a":              "s3://…@host:9000/bucket/a",
		"s3://https://id:SECRET@host:9000/bucket/a":      "s3://https://…@host:9000/bucket/a",
		"s3://id:SECRET@bucket":                          "s3://…@bucket",
		"gs://bucket/a?token=SECRET":                     "gs://bucket/a?…",
		"s3://bucket/models?X-Amz-Security-Token=SECRET": "s3://bucket/models?…",
	} {
		l, _, err := objectstore.Parse(url)
		texts := []string{l.String()}
		if err != nil {
			texts = append(texts, err.Error())
		} else {
			cause := objectstore.Cause{Reason: objectstore.ErrDenied, Name: "AccessDenied", Message: "no"}
			texts = append(texts, l.Join("key"), l.OpenError(cause).Error(), l.ListError("m/", cause).Error(), l.ReadError("m/1/model.py", cause).Error(), l.Unsupported().Error())
		}
		if texts[0] != want {
			t.Errorf("%q: got %q, want %q", url, texts[0], want)
		}
		for _, text := range texts {
			if strings.Contains(text, "SECRET") {
				t.Errorf("%q: the text %q shows the secret", url, text)
			}
		}
	}
}

func TestErrorsAreTritons(t *testing.T) {
	s3, _, _ := objectstore.Parse("s3://h:1/b/models/")
	gs, _, _ := objectstore.Parse("gs://b/models")
	as, _, _ := objectstore.Parse("as://a/c/models")
	cause := objectstore.Cause{Reason: objectstore.ErrDenied, Name: "AccessDenied", Message: "no entry"}
	absent := objectstore.Cause{Reason: objectstore.ErrAbsent, Name: "NoSuchKey", Message: "none"}
	for _, test := range []struct {
		err    *objectstore.Error
		reason error
		want   string
	}{
		{s3.Unsupported(), nil, "s3:// file-system not supported. To enable, build with -DTRITON_ENABLE_S3=ON."},
		{gs.Unsupported(), nil, "gs:// file-system not supported. To enable, build with -DTRITON_ENABLE_GCS=ON."},
		{as.Unsupported(), nil, "as:// file-system not supported. To enable, build with -DTRITON_ENABLE_AZURE_STORAGE=ON."},
		{s3.OpenError(cause), objectstore.ErrDenied, "Unable to create S3 filesystem client. Check account credentials. Exception: 'AccessDenied' Message: 'no entry'"},
		{gs.OpenError(cause), objectstore.ErrDenied, "Unable to create GCS client. Check account credentials. (AccessDenied: no entry)"},
		{as.OpenError(cause), objectstore.ErrDenied, "Unable to create Azure filesystem client. Check account credentials. (AccessDenied: no entry)"},
		{s3.ListError("m/", cause), objectstore.ErrDenied, "Failed to list objects with prefix s3://h:1/b/models/m/ due to exception: AccessDenied, error message: no entry"},
		{gs.ListError("", cause), objectstore.ErrDenied, "Could not list contents of directory at gs://b/models : AccessDenied: no entry"},
		{as.ListError("", cause), objectstore.ErrDenied, "Failed to get contents of directory as://a/c/models: AccessDenied: no entry"},
		{s3.ReadError("m/1/model.py", cause), objectstore.ErrDenied, "Failed to get object at s3://h:1/b/models/m/1/model.py due to exception: AccessDenied, error message: no entry"},
		{gs.ReadError("f", cause), objectstore.ErrDenied, "Failed to open object read stream for gs://b/models/f : AccessDenied: no entry"},
		{as.ReadError("f", cause), objectstore.ErrDenied, "Failed to download file at as://a/c/models/f: AccessDenied: no entry"},
		{gs.ReadError("f", absent), objectstore.ErrAbsent, "File does not exist at gs://b/models/f"},
	} {
		if test.err.Error() != test.want {
			t.Errorf("got  %q,\nwant %q", test.err, test.want)
		}
		if test.reason != nil && !errors.Is(test.err, test.reason) {
			t.Errorf("%q is not %q", test.err, test.reason)
		}
		if got := infer.AsError(test.err); got.Code != infer.Internal || got.Message != test.want {
			t.Errorf("%q as infer.Error: got %s", test.err, got.Status())
		}
	}
}

// TestObjectsOfLocations checks that a location's object keeps the beginning of the URL, because
// that selects the credentials.
func TestObjectsOfLocations(t *testing.T) {
	for _, test := range []struct{ url, path, directory, key string }{
		{"s3://bucket/models", "models/a/../env.tar.gz", "s3://bucket/models", "env.tar.gz"},
		{"s3://bucket/models", "env.tar.gz", "s3://bucket", "env.tar.gz"},
		{"s3:////bucket//models", "models/../x y/env", "s3:////bucket/x y", "env"},
		{"s3://host:9000/bucket/models", "models/../envs/e", "s3://host:9000/bucket/envs", "e"},
		{"s3://https://host:9000//bucket/models", "e", "s3://https://host:9000//bucket", "e"},
		{"gs://bucket", "a/b/c", "gs://bucket/a/b", "c"},
		{"as://account/container/models?sig=x", "models/e", "as://account/container/models", "e"},
		{"as://account.blob.core.windows.net/container", "e", "as://account.blob.core.windows.net/container", "e"},
		{"s3://bucket/models", "models/../../other/e", "", ""},
		{"s3://bucket/models", "", "", ""},
		{"s3://bucket/models", "models/..", "", ""},
	} {
		l, _, err := objectstore.Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		directory, key, named := l.At(test.path).Object()
		if named != (test.key != "") || key != test.key || named && directory.Text != test.directory {
			t.Errorf("%s at %s: got %q of %q, %v; want %q of %q", test.url, test.path, key, directory.Text, named, test.key, test.directory)
		}
		if again, _, err := objectstore.Parse(directory.Text); named && !strings.Contains(test.path, " ") && (err != nil || !again.Same(directory)) {
			t.Errorf("%s: got %+v, %v; want %+v", directory.Text, again, err, directory)
		}
	}
}
