package providers

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/objectstore/objectstoretest"
)

// setEnvironment clears all cloud settings of the environment and applies env.
func setEnvironment(t *testing.T, env map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "TRITON_CLOUD"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	// Ignore the user's own files and the machine's identity.
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range env {
		t.Setenv(name, value)
	}
}

func open(t *testing.T, url string) (objectstore.Bucket, error) {
	t.Helper()
	l, cloud, err := objectstore.Parse(url)
	if err != nil || !cloud {
		t.Fatalf("%s: cloud %v, error %v", url, cloud, err)
	}
	l.Named = true
	b, err := Open(t.Context(), l)
	if err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

func mustOpen(t *testing.T, url string) objectstore.Bucket {
	t.Helper()
	b, err := open(t, url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func List(t *testing.T, b objectstore.Bucket, prefix string) map[string]objectstore.Object {
	t.Helper()
	got := map[string]objectstore.Object{}
	err := b.List(t.Context(), prefix, func(o objectstore.Object) error {
		got[o.Key] = o
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func Names(got map[string]objectstore.Object) []string {
	var all []string
	for key := range got {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

func Read(ctx context.Context, b objectstore.Bucket, o objectstore.Object) (string, error) {
	body, err := b.Open(ctx, o)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

// tell checks the functions that every store must support.
func tell(t *testing.T, s *objectstoretest.Store) {
	large := strings.Repeat("0123456789abcdef", 1<<17)
	s.Put(t, "repository/bert/config.pbtxt", "name: 'bert'")
	s.Put(t, "repository/bert/1/model.py", "first")
	s.Put(t, "repository/bert/1/weights.bin", large)
	s.Put(t, "repository/bert/1/empty", "")
	s.Put(t, "repository/bert/1/a b+c%20ü.txt", "odd")
	s.Put(t, "repository2/other", "no")
	b := mustOpen(t, s.URL+"/repository/")

	all := List(t, b, "")
	if want := []string{"bert/1/a b+c%20ü.txt", "bert/1/empty", "bert/1/model.py", "bert/1/weights.bin", "bert/config.pbtxt"}; !slices.Equal(Names(all), want) {
		t.Fatalf("got %q, want %q", Names(all), want)
	}
	if got := Names(List(t, b, "bert/1/m")); !slices.Equal(got, []string{"bert/1/model.py"}) {
		t.Errorf("below a prefix: got %q", got)
	}
	for key, want := range map[string]string{"bert/1/model.py": "first", "bert/1/weights.bin": large, "bert/1/empty": "", "bert/1/a b+c%20ü.txt": "odd"} {
		o := all[key]
		if got, err := Read(t.Context(), b, o); err != nil || got != want {
			t.Errorf("%s: got %d bytes, %v; want %d", key, len(got), err, len(want))
		}
		if o.Size != int64(len(want)) || o.Version == "" || o.Modified.IsZero() || o.Directory {
			t.Errorf("%s: got %+v", key, o)
		}
	}

	model := all["bert/1/model.py"]
	s.Put(t, "repository/bert/1/model.py", "other")
	if got, err := Read(t.Context(), b, model); !errors.Is(err, objectstore.ErrChanged) {
		t.Errorf("an object that has been written over: got %q, %v", got, err)
	}
	again := List(t, b, "bert/1/model.py")["bert/1/model.py"]
	if got, err := Read(t.Context(), b, again); err != nil || got != "other" || again.Version == model.Version {
		t.Errorf("the new version: got %q, %v, version %s after %s", got, err, again.Version, model.Version)
	}
	s.Drop(t, "repository/bert/1/model.py")
	if _, err := Read(t.Context(), b, again); !errors.Is(err, objectstore.ErrAbsent) && !errors.Is(err, objectstore.ErrChanged) {
		t.Errorf("an object that has been removed: got %v", err)
	}
	if got := List(t, mustOpen(t, s.URL+"/nothing"), ""); len(got) > 0 {
		t.Errorf("an empty directory: got %q", Names(got))
	}

	// A resumed body continues at its offset.
	l, _, _ := objectstore.Parse(s.URL)
	l.Named = true
	credential, err := objectstore.Find(os.Getenv, l)
	if err != nil {
		t.Fatal(err)
	}
	client, err := Connect(t.Context(), l, credential)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	rest, err := client.Read(t.Context(), "repository/bert/1/weights.bin", all["bert/1/weights.bin"], int64(len(large)-5))
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	if got, err := io.ReadAll(rest); err != nil || string(got) != large[len(large)-5:] {
		t.Errorf("the last bytes: got %q, %v", got, err)
	}
	page, next, err := client.Page(t.Context(), "repository", "", 2)
	if err != nil || len(page) != 2 || next == "" {
		t.Fatalf("a page of two: got %v, next %q, %v", page, next, err)
	}
	if more, _, err := client.Page(t.Context(), "repository", next, 2); err != nil || len(more) == 0 || more[0].Key <= page[1].Key {
		t.Errorf("the next page: got %v after %v, %v", more, page, err)
	}
}

// TestS3 reads from an S3-compatible server that checks signatures.
func TestS3(t *testing.T) {
	s := objectstoretest.S3(t)
	setEnvironment(t, s.Environment)
	tell(t, s)

	t.Run("no key", func(t *testing.T) { // the bucket is public
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		if len(List(t, mustOpen(t, s.URL), "")) == 0 {
			t.Error("got no objects")
		}
	})
	for _, test := range []struct {
		name, url string
		env       map[string]string
		want      string
		is        error
	}{
		{"wrong key", s.URL, map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong"}, "Unable to create S3 filesystem client. Check account credentials. Exception: 'SignatureDoesNotMatch'", objectstore.ErrDenied},
		{"unknown key", s.URL, map[string]string{"AWS_ACCESS_KEY_ID": "unknown"}, "Unable to create S3 filesystem client. Check account credentials. Exception: 'InvalidAccessKeyId'", objectstore.ErrDenied},
		{"expired token", s.URL, map[string]string{"AWS_SESSION_TOKEN": "expired"}, "Unable to create S3 filesystem client. Check account credentials. Exception: '", objectstore.ErrDenied},
		{"no bucket", "s3://" + s.Address + "/nothing", nil, "Unable to create S3 filesystem client. Check account credentials. Exception: 'NoSuchBucket'", objectstore.ErrAbsent},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			_, err := open(t, test.url)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || !errors.Is(err, test.is) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), objectstoretest.SecretKey) || strings.Contains(err.Error(), "expired'")) {
				t.Errorf("the text shows a secret: %v", err)
			}
		})
	}

	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "credentials.json")
		write := func(secret string) {
			if err := os.WriteFile(path, []byte(`{"s3": {"": {"key_id": "nobody", "secret_key": "x"}, "s3://`+s.Address+`": {"key_id": "`+objectstoretest.KeyID+`", "secret_key": "`+secret+`"}}}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(objectstore.CredentialFile, path)
		write(objectstoretest.SecretKey)
		b := mustOpen(t, s.URL)
		List(t, b, "")
		write("replaced")
		List(t, b, "") // the file is read again only when the store refuses
		if _, err := open(t, s.URL); !errors.Is(err, objectstore.ErrDenied) {
			t.Errorf("with a wrong key: got %v", err)
		}
	})
}

// TestGCS reads from a server with Google's API.
func TestGCS(t *testing.T) {
	s := objectstoretest.GCS(t)
	setEnvironment(t, s.Environment)
	tell(t, s)
	_, err := open(t, "gs://nothing")
	if want := "Unable to create GCS client. Check account credentials. (Not Found: "; err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, objectstore.ErrAbsent) {
		t.Errorf("no bucket: got %v, want %s…", err, want)
	}
}

// TestAzure reads from Azurite, which checks signatures.
func TestAzure(t *testing.T) {
	s := objectstoretest.Azure(t)
	setEnvironment(t, s.Environment)
	key, err := container.NewSharedKeyCredential(objectstoretest.AzureAccount, objectstoretest.AzureKey)
	if err != nil {
		t.Fatal(err)
	}
	k := connector{stallTime, mostReply}
	transport := k.newTransport()
	defer transport.CloseIdleConnections()
	options := &container.ClientOptions{}
	options.Transport = k.newClient(transport)
	at := os.Getenv(azureEndpoint) + "/" + s.Bucket
	writer, err := container.NewClientWithSharedKeyCredential(at, key, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s.Writer(func(t testing.TB, key, content string) {
		if _, err := writer.NewBlockBlobClient(key).UploadBuffer(t.Context(), []byte(content), &blockblob.UploadBufferOptions{}); err != nil {
			t.Fatal(err)
		}
	}, func(t testing.TB, key string) {
		if _, err := writer.NewBlobClient(key).Delete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	})
	tell(t, s)

	wrong := "AAAA" + objectstoretest.AzureKey[4:]
	for _, test := range []struct {
		name, url, key string
		is             error
	}{
		{"wrong key", s.URL, wrong, objectstore.ErrDenied},
		{"no key", s.URL, "", objectstore.ErrDenied},
		{"no container", "as://" + objectstoretest.AzureAccount + "/nothing", objectstoretest.AzureKey, objectstore.ErrAbsent},
		{"malformed key", s.URL, "%%%", objectstore.ErrDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("AZURE_STORAGE_KEY", test.key)
			_, err := open(t, test.url)
			if want := "Unable to create Azure filesystem client. Check account credentials. ("; err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, test.is) {
				t.Errorf("got %v, want %s…, %v", err, want, test.is)
			}
			if err != nil && test.key != "" && strings.Contains(err.Error(), test.key) {
				t.Errorf("the text shows the key: %v", err)
			}
		})
	}
}
