package certificates_test

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/certificates"
)

// written writes a certificate and its key to dir and returns their Files.
func written(t *testing.T, dir string) certificates.Files {
	t.Helper()
	f := certificates.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	testkit.WriteCertificate(t, f.Cert, f.Key)
	return f
}

// shows returns the certificate that the next handshake would present.
func shows(t *testing.T, s *certificates.Store) []byte {
	t.Helper()
	config, err := s.Config().GetConfigForClient(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return config.Certificates[0].Certificate[0]
}

func TestExchangedFilesTakeEffect(t *testing.T) {
	files := written(t, t.TempDir())
	s, log, later := certificates.Loaded(t, files)
	first := shows(t, s)
	testkit.WriteCertificate(t, files.Cert, files.Key)
	if got := shows(t, s); !bytes.Equal(got, first) {
		t.Error("the files were looked at again within the same second")
	}
	later()
	second := shows(t, s)
	if bytes.Equal(second, first) {
		t.Errorf("the certificate is still the first one; log: %s", log)
	}
	later()
	if got := shows(t, s); !bytes.Equal(got, second) || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("unchanged files were read again; log: %s", log)
	}
}

// TestLinkExchangedAsKubernetesDoes checks that a certificate is reloaded after its directory was
// replaced by redirecting a symbolic link, as Kubernetes replaces a secret.
func TestLinkExchangedAsKubernetesDoes(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		written(t, filepath.Join(dir, version))
	}
	link := filepath.Join(dir, "data")
	if err := os.Symlink("1", link); err != nil {
		t.Fatal(err)
	}
	s, _, later := certificates.Loaded(t, certificates.Files{Cert: filepath.Join(link, "tls.crt"), Key: filepath.Join(link, "tls.key")})
	first := shows(t, s)
	if err := os.Symlink("2", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	later()
	if bytes.Equal(shows(t, s), first) {
		t.Error("the certificate is still the first one")
	}
}

// TestHalfExchangedFilesLeaveTheOldOnes checks that the old certificate stays in use while a new
// certificate has arrived without its key.
func TestHalfExchangedFilesLeaveTheOldOnes(t *testing.T) {
	dir := t.TempDir()
	files := written(t, dir)
	s, log, later := certificates.Loaded(t, files)
	first := shows(t, s)
	next := written(t, t.TempDir())
	if err := os.Rename(next.Cert, files.Cert); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		later()
		if !bytes.Equal(shows(t, s), first) {
			t.Fatal("a certificate without its key is shown")
		}
	}
	if n := strings.Count(log.String(), "changed certificates are not valid"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, log)
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	later()
	if !bytes.Equal(shows(t, s), first) {
		t.Fatal("no certificate is shown")
	}
	if err := os.Rename(next.Key, files.Key); err != nil {
		t.Fatal(err)
	}
	later()
	if bytes.Equal(shows(t, s), first) {
		t.Error("the certificate is still the first one")
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	good := written(t, dir)
	other := written(t, t.TempDir())
	for name, files := range map[string]certificates.Files{
		"no certificate":          {Cert: filepath.Join(dir, "none"), Key: good.Key},
		"the key of another":      {Cert: good.Cert, Key: other.Key},
		"no root":                 {Cert: good.Cert, Key: good.Key, Root: filepath.Join(dir, "none")},
		"a root that is no such":  {Cert: good.Cert, Key: good.Key, Root: good.Key},
		"a certificate that is a": {Cert: dir, Key: good.Key},
	} {
		if s, err := certificates.Load(files, zerolog.Nop()); err == nil || s != nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
