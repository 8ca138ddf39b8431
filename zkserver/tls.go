package zkserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// tls reads the ssl.* keys: PEM files only. ssl.clientAuth is need (as in
// ZooKeeper, the default), want or none.
func (s *settings) tls() (*tls.Config, error) {
	keyStore, keyType := s.take("ssl.keyStore.location"), s.take("ssl.keyStore.type")
	trustStore, trustType := s.take("ssl.trustStore.location"), s.take("ssl.trustStore.type")
	password, clientAuth := s.take("ssl.keyStore.password"), s.take("ssl.clientAuth")
	s.take("ssl.trustStore.password") // PEM has none
	if path := s.take("ssl.keyStore.passwordPath"); path != "" && password == "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read ssl.keyStore.passwordPath: %w", err)
		}
		password = strings.TrimSpace(string(b))
	}
	if keyStore == "" {
		return nil, errors.New("ssl.keyStore.location is not set: give a PEM file with key and certificates")
	}
	if err := mustBePEM("ssl.keyStore", keyStore, keyType); err != nil {
		return nil, err
	}
	if err := mustBePEM("ssl.trustStore", trustStore, trustType); err != nil {
		return nil, err
	}
	if password != "" {
		return nil, errors.New("ssl.keyStore.password is set: only PEM files whose key is not encrypted can be read")
	}
	pair, err := tls.LoadX509KeyPair(keyStore, keyStore)
	if err != nil {
		return nil, fmt.Errorf("read ssl.keyStore.location %s: %w", keyStore, err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	switch strings.ToLower(clientAuth) {
	case "", "need":
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	case "want":
		conf.ClientAuth = tls.VerifyClientCertIfGiven
	case "none":
		return conf, nil
	default:
		return nil, fmt.Errorf("ssl.clientAuth is %q: it must be need, want or none", clientAuth)
	}
	if trustStore == "" {
		return nil, errors.New("ssl.trustStore.location is not set, which ssl.clientAuth=need and want ask for: give a PEM file, or ssl.clientAuth=none")
	}
	pem, err := os.ReadFile(trustStore)
	if err != nil {
		return nil, fmt.Errorf("read ssl.trustStore.location: %w", err)
	}
	conf.ClientCAs = x509.NewCertPool()
	if !conf.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ssl.trustStore.location %s has no PEM certificate", trustStore)
	}
	return conf, nil
}

// mustBePEM refuses stores of Java's own kinds, told by type or by name.
func mustBePEM(key, location, typ string) error {
	name := strings.ToLower(location)
	java := strings.HasSuffix(name, ".jks") || strings.HasSuffix(name, ".p12") || strings.HasSuffix(name, ".pfx") || strings.HasSuffix(name, ".bcfks")
	if typ != "" && !strings.EqualFold(typ, "PEM") || typ == "" && java {
		return fmt.Errorf("%s.location %s is not a PEM store: convert it (openssl pkcs12 -nodes) and set %s.type=PEM", key, location, key)
	}
	return nil
}
