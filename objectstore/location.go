package objectstore

import (
	"path"
	"regexp"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// The schemes.
const (
	S3    = "s3"
	GCS   = "gs"
	Azure = "as"
)

// Location is where a repository is stored.
type Location struct {
	Scheme   string // S3, GCS or Azure
	Endpoint string // of S3: http://host:port or https://host:port; empty is AWS
	Account  string // of Azure
	Bucket   string // Azure's container
	Path     string // below the bucket, without '/' at either end; empty is the whole bucket
	Text     string // as the user wrote it; may contain secrets, unlike String
	// Named reports that the operator names the endpoint: the credentials of the environment are
	// sent there. A model may name any endpoint.
	Named bool
}

// The patterns are Triton's: an S3 endpoint has a port, a bucket is lower case, and a path has
// letters, digits, '.', '-' and '_' alone; Azure's query is read and ignored.
var (
	s3Endpoint = regexp.MustCompile(`^s3://(http://|https://|)([0-9a-zA-Z\-.]+):([0-9]+)/([0-9a-z.\-]+)((?:/[0-9a-zA-Z.\-_]+)*)$`)
	azureURL   = regexp.MustCompile(`^as://([^/]+)/([^/?]+)(?:/([^?]*))?(\?.*)?$`)
)

const (
	azureDomain = ".blob.core.windows.net"
	maxText     = 4096 // bytes of a URL
)

// Parse reads the URL of a location in an object store. It returns false for a local path. The
// error is an *Error with Triton's text.
func Parse(url string) (Location, bool, error) {
	scheme, rest, found := strings.Cut(url, "://")
	if !found || scheme != S3 && scheme != GCS && scheme != Azure {
		return Location{}, false, nil
	}
	l := Location{Scheme: scheme, Text: url}
	if len(url) > maxText || !printable(url) {
		return l, true, malformed("Invalid bucket name: '%s' (the URL has characters that no name has, or more than %d bytes)", cleanText(l.String()[:min(len(l.String()), 100)]), maxText)
	}
	switch scheme {
	case S3:
		return parseS3(l, rest)
	case GCS:
		bucket, below, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return l, true, internal("No bucket name found in path: %s", l)
		}
		l.Bucket, l.Path = bucket, strings.Trim(below, "/")
	case Azure:
		match := azureURL.FindStringSubmatch(url)
		if match == nil {
			return l, true, internal("Invalid azure storage path: %s", l)
		}
		l.Account, l.Bucket, l.Path = strings.TrimSuffix(match[1], azureDomain), match[2], strings.Trim(match[3], "/")
		if !azureName.MatchString(l.Account) {
			return l, true, internal("Invalid azure storage path: %s (the account is followed by %s or nothing, and its name has letters, digits and '-' alone)", l, azureDomain)
		}
	}
	return l, true, nil
}

// azureName matches names that may become part of a host's name: it keeps the credentials of an
// account from any other host.
var azureName = regexp.MustCompile(`^[0-9a-zA-Z\-]+$`)

// bound: maxText
func parseS3(l Location, rest string) (Location, bool, error) {
	clean, word := rest, ""
	for _, w := range []string{"https://", "http://"} {
		if after, found := strings.CutPrefix(rest, w); found {
			clean, word = after, w
			break
		}
	}
	components := strings.FieldsFunc(clean, func(r rune) bool { return r == '/' })
	if len(components) == 0 {
		return l, true, malformed("Invalid bucket name: '%s'", clean)
	}
	clean = strings.Join(components, "/")
	if match := s3Endpoint.FindStringSubmatch("s3://" + word + clean); match != nil {
		if word == "" {
			word = "http://"
		}
		l.Endpoint, l.Bucket, l.Path = word+match[2]+":"+match[3], match[4], strings.TrimPrefix(match[5], "/")
		return l, true, nil
	}
	if word != "" || strings.ContainsAny(components[0], ":@?") {
		return l, true, malformed("Invalid bucket name: '%s' (with an endpoint the form is s3://https://host:port/bucket/path: the port is needed, the bucket is lower case, and the path has letters, digits, '.', '-' and '_' alone)",
			strings.TrimPrefix(l.String(), "s3://"))
	}
	l.Bucket, l.Path = components[0], strings.Join(components[1:], "/")
	return l, true, nil
}

// At returns the location with that path in the same bucket. Its text begins like l's, because the
// text determines the credentials.
func (l Location) At(path string) Location {
	text, _, _ := strings.Cut(l.Text, "?")
	start := strings.Index(text, "://") + len("://")
	if l.Endpoint != "" {
		for _, word := range []string{"https://", "http://"} {
			if strings.HasPrefix(text[start:], word) {
				start += len(word)
				break
			}
		}
	}
	components := 1 // up to the bucket
	if l.Endpoint != "" || l.Scheme == Azure {
		components = 2
	}
	end := start
	for range components {
		end += len(text[end:]) - len(strings.TrimLeft(text[end:], "/"))
		length := strings.IndexByte(text[end:], '/')
		if length < 0 {
			length = len(text) - end
		}
		end += length
	}
	l.Path, l.Text = path, strings.TrimSuffix(text[:end]+"/"+path, "/")
	return l
}

// Object divides the location of one object into its directory and its key. It returns false if the
// path names no object, or leaves the bucket by "..", which is resolved textually, as in Triton.
func (l Location) Object() (directory Location, key string, named bool) {
	clean := path.Clean(l.Path) // bound: a location on the command line or in a config
	if l.Path == "" || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.HasPrefix(clean, "/") {
		return l, "", false
	}
	parent, key := path.Split(clean)
	return l.At(strings.TrimSuffix(parent, "/")), key, true
}

// Same reports whether both are the same location, however written.
func (l Location) Same(other Location) bool {
	l.Text, other.Text = "", ""
	l.Named, other.Named = false, false
	return l == other
}

// String returns the text without possible secrets: a user before a host, and a query.
func (l Location) String() string {
	if strings.Contains(l.Text, "?") {
		return l.withoutQuery() + "?…"
	}
	return l.withoutQuery()
}

// Join returns the text for people of an object below the location.
func (l Location) Join(key string) string {
	if key == "" {
		return l.withoutQuery()
	}
	return strings.TrimRight(l.withoutQuery(), "/") + "/" + key
}

func (l Location) withoutQuery() string {
	text, _, _ := strings.Cut(l.Text, "?")
	start := strings.LastIndex(text, "://") + len("://")
	host, _, _ := strings.Cut(text[start:], "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		return text[:start] + "…" + text[start+at:]
	}
	return text
}

// Unsupported is the error of a server without the clients of the stores.
func (l Location) Unsupported() *Error {
	option := map[string]string{S3: "S3", GCS: "GCS", Azure: "AZURE_STORAGE"}[l.Scheme]
	return newError(nil, infer.Internal, "%s:// file-system not supported. To enable, build with -DTRITON_ENABLE_%s=ON.", l.Scheme, option)
}

// IsAzureAccount reports whether a name can be that of an Azure account.
func IsAzureAccount(name string) bool { return azureName.MatchString(name) }
