package zkserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

func zooCfg(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zoo.cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseZooCfg(t *testing.T) {
	for _, c := range []struct {
		name, text, flags string
		want              ZooCfg
	}{
		{name: "the least", text: "clientPort=2181", want: ZooCfg{ClientAddr: ":2181", Options: Options{ClientPort: 2181, MaxClientCnxns: 60, PurgeRetain: 3}}},
		{name: "flags nobody knows, and zeros in front", text: "clientPort=02181\ntickTime=0500\nsnapCount=0x10",
			flags: "-Dzookeeper.admin.enableServer=false -Dlog4j.debug -Dzookeeper.fsync.warningthresholdms=20",
			want: ZooCfg{ClientAddr: ":2181", Options: Options{ClientPort: 2181, TickTime: 500 * time.Millisecond, SnapCount: 16, MaxClientCnxns: 60, PurgeRetain: 3},
				Warnings: []string{"SERVER_JVMFLAGS: the key admin.enableServer is not known here and is ignored",
					"SERVER_JVMFLAGS: the key fsync.warningthresholdms is not known here and is ignored"}}},
		{name: "a full one, in the forms of Java's properties", text: `
# comment
! comment
clientPort: 2182
clientPortAddress=127.0.0.1
  tickTime = 500
dataDir /tmp/zk data
dataLogDir=/tmp/log
minSessionTimeout=-1
maxSessionTimeout=9000
maxClientCnxns=0
4lw.commands.whitelist=stat, ruok
extendedTypesEnabled=true
DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=
forceSync=no
jute.maxbuffer=0x200000
snapCount=7
autopurge.snapRetainCount=2
autopurge.purgeInterval=24
initLimit=5
`, flags: "-Xmx1g -Dzookeeper.extendedTypesEnabled=false -Dznode.container.checkIntervalMs=100 -Dzookeeper.snapCount=9 -Dorg.slf4j.x=y",
			want: ZooCfg{ClientAddr: "127.0.0.1:2182", Warnings: []string{"zoo.cfg:20: the key initLimit is not known here and is ignored"},
				Options: Options{ClientPort: 2182, TickTime: 500 * time.Millisecond, MaxSessionTimeout: 9 * time.Second, DataDir: "/tmp/zk data", LogDir: "/tmp/log",
					FourLetterWords: []string{"stat", "ruok"}, SuperDigest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", NoForceSync: true, MaxBuffer: 1 << 21,
					SnapCount: 9, PurgeRetain: 3, PurgeInterval: 24 * time.Hour, ContainerCheck: 100 * time.Millisecond}}},
		{name: "a Java key store", text: "clientPort=2181\nsecureClientPort=2281\nssl.keyStore.location=/x/server.jks\nssl.keyStore.password=secret",
			want: ZooCfg{ClientAddr: ":2181", Options: Options{ClientPort: 2181, MaxClientCnxns: 60, PurgeRetain: 3},
				Warnings: []string{"the secure client port 2281 stays shut: ssl.keyStore.location /x/server.jks is not a PEM store: convert it (openssl pkcs12 -nodes) and set ssl.keyStore.type=PEM"}}},
	} {
		path := zooCfg(t, c.text)
		got, err := ParseZooCfg(path, c.flags)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i := range got.Warnings {
			got.Warnings[i] = strings.ReplaceAll(got.Warnings[i], filepath.Dir(path)+"/", "")
		}
		if diff := cmp.Diff(&c.want, got, cmpopts.IgnoreFields(ZooCfg{}, "TLS")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestZooCfgThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"clientPort=x":                                     `zoo.cfg:1: clientPort is "x": it must be a whole number`,
		"clientPort=2181\nforceSync=perhaps":               `zoo.cfg:2: forceSync is "perhaps": it must be true or false`,
		"clientPort=2181\ntickTime=9999999999":             "zoo.cfg:2: tickTime",
		"clientPort":                                       `zoo.cfg:1: "clientPort" has no value`,
		"clientPort=1\nserver.1=a:1:2\nserver.2=b:1:2":     "server.N names 2 servers",
		"tickTime=2000":                                    "neither clientPort nor secureClientPort is set",
		"secureClientPort=1\nssl.keyStore.location=/x.jks": "no port would be open: the secure client port 1 stays shut",
		"clientPort=0x1":                                   `zoo.cfg:1: clientPort is "0x1": it must be a whole number`,
		"clientPort=2181\ndataLogDir=/tmp/x":               "dataLogDir is set but dataDir is not",
		"clientPort=2181\nmaxSessionTimeout=100":           "the longest must not be below the shortest",
	} {
		_, err := ParseZooCfg(zooCfg(t, text), "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseZooCfg(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a file that is not there was read")
	}
}

// pemPair makes a key and a certificate for 127.0.0.1 in one PEM file.
func pemPair(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTLSPort(t *testing.T) {
	server, clientPEM := pemPair(t, "server.pem"), pemPair(t, "client.pem")
	cfg, err := ParseZooCfg(zooCfg(t, "secureClientPort=1\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location="+server+"\nssl.trustStore.location="+clientPEM), "")
	if err != nil || cfg.TLS == nil || len(cfg.Warnings) != 0 || cfg.SecureAddr != "127.0.0.1:1" || cfg.ClientAddr != "" {
		t.Fatalf("%+v, %v", cfg, err)
	}
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), Log: log})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(tls.NewListener(l, cfg.TLS)) }()
	pool := x509.NewCertPool()
	text, err := os.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(text)
	pair, err := tls.LoadX509KeyPair(clientPEM, clientPEM)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, nc: nc}
	if !c.connect(zkwire.ConnectRequest{Timeout: 10000, Password: make([]byte, 16)}) {
		t.Fatal("no session over TLS")
	}
	c.create("/tls", "", 0)
	if !c.exists("/tls") {
		t.Error("the node is not there")
	}
	// Plain bytes on the TLS port hurt nobody, and so does a client without a certificate.
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := &rawClient{t: t, nc: plain}
	if p.connect(zkwire.ConnectRequest{Timeout: 10000, Password: make([]byte, 16)}) {
		t.Error("a session without TLS")
	}
	plain.Close()
	if nc, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool}); err == nil {
		p := &rawClient{t: t, nc: nc}
		if p.connect(zkwire.ConnectRequest{Timeout: 10000, Password: make([]byte, 16)}) {
			t.Error("a session without a certificate")
		}
		nc.Close()
	}
	c.must(zkwire.OpCloseSession, nil)
	nc.Close()
	s.Close()
	if out.count() != 2 { // one line each
		t.Errorf("the log: %s", out)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestTLSThatCannotBe(t *testing.T) {
	good := pemPair(t, "good.pem")
	empty := zooCfg(t, "nothing")
	for keys, want := range map[string]string{
		"":                                "ssl.keyStore.location is not set",
		"ssl.keyStore.location=/no/x.pem": "no such file",
		"ssl.keyStore.location=" + good + "\nssl.keyStore.type=JKS":                                                         "is not a PEM store",
		"ssl.keyStore.location=" + good:                                                                                     "ssl.trustStore.location is not set",
		"ssl.keyStore.location=" + good + "\nssl.clientAuth=maybe":                                                          "ssl.clientAuth is",
		"ssl.keyStore.location=" + good + "\nssl.trustStore.location=/x.p12":                                                "is not a PEM store",
		"ssl.keyStore.location=" + good + "\nssl.trustStore.location=" + empty:                                              "has no PEM certificate",
		"ssl.keyStore.location=" + good + "\nssl.keyStore.password=x":                                                       "not encrypted",
		"ssl.keyStore.location=" + good + "\nssl.keyStore.passwordPath=/no/x":                                               "no such file",
		"ssl.keyStore.location=" + empty + "\nssl.clientAuth=none":                                                          "read ssl.keyStore.location",
		"ssl.keyStore.location=" + good + "\nssl.clientAuth=want\nssl.trustStore.location=/no/y.pem\nssl.keyStore.type=PEM": "no such file",
	} {
		cfg, err := ParseZooCfg(zooCfg(t, "clientPort=1\nsecureClientPort=2\n"+keys), "")
		if err != nil {
			t.Errorf("%q: %v", keys, err)
			continue
		}
		if cfg.TLS != nil || cfg.SecureAddr != "" || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0], want) {
			t.Errorf("%q: warnings %q, want %q", keys, cfg.Warnings, want)
		}
	}
	cfg, err := ParseZooCfg(zooCfg(t, "clientPort=1\nsecureClientPort=2\nssl.clientAuth=none\nssl.keyStore.location="+good), "")
	if err != nil || cfg.TLS == nil {
		t.Errorf("without client certificates: %+v, %v", cfg, err)
	}
}
