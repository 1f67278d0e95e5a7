package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestClientsAreServedOverTLS checks TLS with client certificates over both protocols, and that the
// server uses a certificate that is replaced while it runs.
func TestClientsAreServedOverTLS(t *testing.T) {
	dir := t.TempDir()
	server, client := filepath.Join(dir, "server"), filepath.Join(dir, "client")
	testkit.WriteCertificate(t, server+".crt", server+".key")
	testkit.WriteCertificate(t, client+".crt", client+".key")
	port := testkit.Port(t)
	s := start(t, testkit.Python(t).Path, identityRepository(t),
		fmt.Sprintf("--https-port=%d", port), "--https-server-cert="+server+".crt", "--https-server-key="+server+".key", "--https-root-cert="+client+".crt",
		"--grpc-use-ssl-mutual=true", "--grpc-server-cert="+server+".crt", "--grpc-server-key="+server+".key", "--grpc-root-cert="+client+".crt")
	at := fmt.Sprintf("localhost:%d", port)
	s.runClient("secure.py", at, server+".crt", client+".crt", client+".key")

	ready := func(certificates ...tls.Certificate) error {
		roots := x509.NewCertPool()
		pem, err := os.ReadFile(server + ".crt")
		if err != nil || !roots.AppendCertsFromPEM(pem) {
			t.Fatal("no certificate", err)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		reply, err := (&http.Client{Transport: transport, Timeout: startLimit}).Get("https://" + at + "/v2/health/ready")
		if err != nil {
			return err
		}
		return reply.Body.Close()
	}
	pair, err := tls.LoadX509KeyPair(client+".crt", client+".key")
	if err != nil {
		t.Fatal(err)
	}
	if err := ready(); err == nil {
		t.Error("a client without a certificate was served")
	}
	testkit.WriteCertificate(t, server+".crt", server+".key")
	s.until("served with the new certificate", func() bool { return ready(pair) == nil })
	s.runClient("secure.py", at, server+".crt", client+".crt", client+".key")
}
