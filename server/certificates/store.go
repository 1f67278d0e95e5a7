package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Files are PEM files.
type Files struct {
	Cert string // the server's certificate and its intermediate certificates
	Key  string // its private key
	Root string // roots of client certificates; "": clients need none
}

// lookEvery is the least time between two checks of the files, which handshakes cause.
const lookEvery = time.Second

// Store has the last usable content of the files.
type Store struct {
	files     Files
	protocols []string
	log       zerolog.Logger
	now       func() time.Time

	mu     sync.Mutex
	config *tls.Config
	seen   [3]stamp // of the files that were read last, usable or not
	looked time.Time
}

// stamp identifies the state of a file, to detect changes.
type stamp struct {
	size     int64
	modified time.Time
	file     os.FileInfo // for os.SameFile; nil: os.Stat failed
}

// Load reads the files, which must be usable. It offers these protocols in this order (ALPN).
func Load(files Files, log zerolog.Logger, protocols ...string) (*Store, error) {
	s := &Store{files: files, protocols: protocols, log: log, now: time.Now}
	s.seen = s.stamps()
	config, err := s.read()
	if err != nil {
		return nil, err
	}
	s.config, s.looked = config, s.now()
	return s, nil
}

// Config returns the configuration of a listener. Each handshake uses the current files.
func (s *Store) Config() *tls.Config {
	config := s.Current().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.Current(), nil }
	return config
}

// Current returns the configuration of the next handshake. It rereads changed files.
func (s *Store) Current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= lookEvery {
		s.looked = now
		s.lookLocked()
	}
	return s.config
}

func (s *Store) lookLocked() {
	// The stamps come first, so that a file that changes while it is read is read again.
	stamps := s.stamps()
	same := true
	for i := range stamps {
		same = same && stamps[i].equal(s.seen[i])
	}
	if same {
		return
	}
	s.seen = stamps
	config, err := s.read()
	if err != nil {
		s.log.Warn().Err(err).Msg("changed certificates are not valid; the previous ones stay in use")
		return
	}
	s.config = config
	s.log.Info().Str("certificate", s.files.Cert).Msg("certificates reloaded")
}

func (s *Store) stamps() (all [3]stamp) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.Root} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			all[i] = stamp{info.Size(), info.ModTime(), info}
		}
	}
	return all
}

func (a stamp) equal(b stamp) bool {
	if a.file == nil || b.file == nil {
		return a.file == nil && b.file == nil
	}
	return a.size == b.size && a.modified.Equal(b.modified) && os.SameFile(a.file, b.file)
}

func (s *Store) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: s.protocols}
	if s.files.Root == "" {
		return config, nil
	}
	pem, err := os.ReadFile(s.files.Root) // bound: the operator's file
	if err != nil {
		return nil, fmt.Errorf("load root certificate: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load root certificate: no certificate in %s", s.files.Root)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	// A resumed session would use the roots of its beginning.
	config.SessionTicketsDisabled = true
	return config, nil
}
