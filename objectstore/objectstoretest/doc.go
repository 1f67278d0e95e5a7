// Package objectstoretest runs real object stores for tests: SeaweedFS for S3, fake-gcs-server for Google's, Azurite for Azure's.
// The programs lie in the directory that NEREID_TEST_STORES names; "make stores" makes it. A test that asks for one is skipped
// where it is not there.
//
// Each function starts a store of its own, on ports of its own, which ends with the test. Objects are put into it by plain
// HTTP: S3 and Google's lets anybody write, and S3 wants a key of readers. Several goroutines may use a store.
package objectstoretest
