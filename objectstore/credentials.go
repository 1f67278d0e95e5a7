package objectstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/nereid-serving/nereid/infer"
)

// Credential opens one location. The fields of other stores are empty. If all are empty, the
// store's client searches for itself: in its files, or the identity of the machine or of the pod.
type Credential struct {
	KeyID, SecretKey, SessionToken string // of S3; SecretKey and KeyID are both there or neither
	Region, Profile                string // of S3
	File                           string // of GCS: a path to a key of Google
	Account                        string // of Azure; empty is that of the URL
	AuthType, AccountKey, ClientID string // of Azure: AuthType is managed_identity, default, or anything else for AccountKey
	Anonymous                      bool   // of S3: requests are not signed, whatever the client finds by itself
}

// String shows no secret.
func (c Credential) String() string { return "credential" }

// GoString shows no secret.
func (c Credential) GoString() string { return "credential" }

// CredentialFile is the environment variable that names the file with credentials by URL.
const CredentialFile = "TRITON_CLOUD_CREDENTIAL_PATH"

const maxCredentialFile = 1 << 20

// endpointVariables are the variables that set an endpoint for Amazon's clients.
var endpointVariables = []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}

// Find returns the credential for a location: that of the file in TRITON_CLOUD_CREDENTIAL_PATH if
// it is set, and else that of the other variables. It reads both with each call. An endpoint that
// the operator names nowhere gets no credential. The error contains no secret.
func Find(getenv func(string) string, l Location) (c Credential, err error) {
	isNamed := l.Named || l.Endpoint == "" || slices.ContainsFunc(endpointVariables, func(name string) bool {
		return strings.EqualFold(strings.TrimRight(getenv(name), "/"), l.Endpoint)
	})
	switch file := getenv(CredentialFile); {
	case file != "":
		c, err = fromFile(file, l, isNamed)
	case !isNamed:
		c = Credential{Anonymous: true}
	default:
		c = fromEnvironment(getenv, l)
	}
	if c.AuthType == "default" { // as in the chain of Azure's SDK
		c.ClientID = cmp.Or(c.ClientID, getenv("AZURE_CLIENT_ID"))
	}
	return c, err
}

func fromEnvironment(getenv func(string) string, l Location) Credential {
	switch l.Scheme {
	case S3:
		c := Credential{KeyID: getenv("AWS_ACCESS_KEY_ID"), SecretKey: getenv("AWS_SECRET_ACCESS_KEY")}
		if c.KeyID != "" && c.SecretKey != "" {
			c.SessionToken, c.Region = getenv("AWS_SESSION_TOKEN"), getenv("AWS_DEFAULT_REGION")
			return c
		}
		return Credential{Profile: getenv("AWS_PROFILE"), Region: getenv("AWS_DEFAULT_REGION")}
	case GCS:
		return Credential{File: getenv("GOOGLE_APPLICATION_CREDENTIALS")}
	}
	return Credential{
		Account: getenv("AZURE_STORAGE_ACCOUNT"), AuthType: getenv("AZURE_STORAGE_AUTH_TYPE"),
		AccountKey: getenv("AZURE_STORAGE_KEY"), ClientID: getenv("AZURE_STORAGE_CLIENT_ID"),
	}
}

// fromFile reads the file and chooses the entry with the longest prefix of the user's text. Unless
// the endpoint is named elsewhere, the prefix must name it.
func fromFile(file string, l Location, isNamed bool) (Credential, error) {
	content, err := readBounded(file)
	if err != nil {
		return Credential{}, newError(ErrDenied, infer.Internal, "read the cloud credentials that %s names: %v", CredentialFile, pathless(err))
	}
	// A map for each level, since a struct would take members whose names differ in case.
	var stores map[string]map[string]json.RawMessage
	if err := json.Unmarshal(content, &stores); err != nil {
		return Credential{}, unreadable(file, "", err)
	}
	best, found, least := "", false, 0
	if !isNamed {
		_, host, _ := strings.Cut(l.Endpoint, "://")
		least = strings.Index(l.Text, host) + len(host)
	}
	for prefix := range stores[l.Scheme] {
		if len(prefix) >= least && strings.HasPrefix(l.Text, prefix) && (!found || len(prefix) > len(best)) {
			best, found = prefix, true
		}
	}
	if !found {
		return Credential{}, newError(ErrDenied, infer.NotFound, "Cannot match credential for path  %s", l)
	}
	entry := stores[l.Scheme][best]
	if l.Scheme == GCS {
		var path string
		if err := json.Unmarshal(entry, &path); err != nil {
			return Credential{}, unreadable(file, l.Scheme, errors.New("want a string, the path of a key"))
		}
		return Credential{File: path}, nil
	}
	var members map[string]string
	if err := json.Unmarshal(entry, &members); err != nil {
		return Credential{}, unreadable(file, l.Scheme, errors.New("want an object whose members are strings"))
	}
	if l.Scheme == Azure {
		return Credential{Account: members["account_str"], AuthType: members["auth_type"], AccountKey: members["account_key"], ClientID: members["client_id"]}, nil
	}
	c := Credential{KeyID: members["key_id"], SecretKey: members["secret_key"], SessionToken: members["session_token"], Region: members["region"], Profile: members["profile"]}
	if c.KeyID == "" || c.SecretKey == "" {
		c.KeyID, c.SecretKey, c.SessionToken = "", "", ""
	}
	return c, nil
}

// unreadable is the error of a malformed file. Errors of encoding/json quote single characters at
// most.
func unreadable(file, scheme string, err error) *Error {
	if scheme != "" {
		scheme = fmt.Sprintf(", member %q", scheme)
	}
	return newError(ErrDenied, infer.Internal, "read the cloud credentials of %s%s: %v", file, scheme, err)
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxCredentialFile+1))
	if err == nil && len(content) > maxCredentialFile {
		err = fmt.Errorf("it has more than %d bytes", maxCredentialFile)
	}
	return content, err
}

// pathless returns the reason of a failed system call without the path.
func pathless(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}
