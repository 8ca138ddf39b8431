package brokerport

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// idleKeys are the configurations of brokers of 3.9.1 that mean nothing here, each
// behind its type; those that Kafka changes at run time have a star.
const idleKeys = `
BOOLEAN auto.include.jmx.reporter broker.id.generation.enable eligible.leader.replicas.enable log.cleaner.enable remote.log.storage.system.enable
ssl.allow.dn.changes ssl.allow.san.changes transaction.partition.verification.enable* zookeeper.metadata.migration.enable zookeeper.ssl.client.enable
zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable
STRING authorizer.class.name controller.listener.names early.start.listeners max.connections.per.ip.overrides* metadata.log.dir
metrics.recording.level password.encoder.cipher.algorithm password.encoder.keyfactory.algorithm remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix replica.selector.class
sasl.kerberos.kinit.cmd* sasl.kerberos.service.name* sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol*
sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol security.providers ssl.client.auth* ssl.endpoint.identification.algorithm*
ssl.keymanager.algorithm* ssl.keystore.location* ssl.keystore.type* ssl.principal.mapping.rules ssl.protocol* ssl.provider*
ssl.secure.random.implementation* ssl.trustmanager.algorithm* ssl.truststore.location* ssl.truststore.type* zookeeper.clientCnxnSocket
zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location zookeeper.ssl.keystore.type zookeeper.ssl.protocol
zookeeper.ssl.truststore.location zookeeper.ssl.truststore.type
INT alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds background.threads* broker.heartbeat.interval.ms
broker.session.timeout.ms connection.failed.authentication.delay.ms controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms delete.records.purgatory.purge.interval.requests
fetch.purgatory.purge.interval.requests group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
group.consumer.session.timeout.ms group.coordinator.append.linger.ms group.coordinator.threads group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms initial.broker.registration.timeout.ms
kafka.metrics.polling.interval.secs log.cleaner.io.buffer.size* log.cleaner.threads* log.flush.offset.checkpoint.interval.ms
log.flush.start.offset.checkpoint.interval.ms max.connection.creation.rate* max.connections* max.connections.per.ip* max.request.partition.size.limit
metadata.log.segment.bytes metadata.max.idle.interval.ms metrics.num.samples node.id num.io.threads* num.network.threads*
num.recovery.threads.per.data.dir* num.replica.alter.log.dirs.threads offsets.load.buffer.size offsets.topic.compression.codec
password.encoder.iterations password.encoder.key.length producer.purgatory.purge.interval.requests queued.max.requests quota.window.num
quota.window.size.seconds remote.fetch.max.wait.ms* remote.log.manager.copier.thread.pool.size remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.reader.max.pending.tasks remote.log.reader.threads replica.socket.receive.buffer.bytes replica.socket.timeout.ms
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.oauthbearer.clock.skew.seconds sasl.server.max.receive.size socket.listen.backlog.size socket.receive.buffer.bytes
socket.send.buffer.bytes telemetry.max.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.segment.bytes transactional.id.expiration.ms zookeeper.max.in.flight.requests
SHORT group.share.max.groups group.share.max.size offsets.commit.required.acks sasl.login.refresh.buffer.seconds*
sasl.login.refresh.min.period.seconds* transaction.state.log.replication.factor
LONG connections.max.idle.ms connections.max.reauth.ms delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms log.cleaner.backoff.ms* log.cleaner.dedupe.buffer.size* log.dir.failure.timeout.ms log.flush.scheduler.interval.ms
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.ms metadata.max.retention.bytes
metadata.max.retention.ms metrics.sample.window.ms remote.log.index.file.cache.total.size.bytes*
remote.log.manager.copy.max.bytes.per.second* remote.log.manager.fetch.max.bytes.per.second* remote.log.manager.task.interval.ms
sasl.kerberos.min.time.before.relogin* sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms
DOUBLE log.cleaner.io.buffer.load.factor* log.cleaner.io.max.bytes.per.second* sasl.kerberos.ticket.renew.jitter*
sasl.kerberos.ticket.renew.window.factor* sasl.login.refresh.window.factor* sasl.login.refresh.window.jitter*
LIST controller.quorum.bootstrap.servers controller.quorum.voters group.consumer.assignors group.coordinator.rebalance.protocols
kafka.metrics.reporters metric.reporters* process.roles sasl.enabled.mechanisms* sasl.kerberos.principal.to.local.rules*
sasl.oauthbearer.expected.audience ssl.cipher.suites* ssl.enabled.protocols* zookeeper.ssl.cipher.suites zookeeper.ssl.enabled.protocols
CLASS alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name principal.builder.class*
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class sasl.server.callback.handler.class ssl.engine.factory.class*
PASSWORD delegation.token.master.key delegation.token.secret.key password.encoder.old.secret password.encoder.secret sasl.jaas.config*
ssl.key.password* ssl.keystore.certificate.chain* ssl.keystore.key* ssl.keystore.password* ssl.truststore.certificates* ssl.truststore.password*
zookeeper.ssl.keystore.password zookeeper.ssl.truststore.password
`

// idleSettings has idleKeys by name.
func idleSettings() map[string]setting {
	out := map[string]setting{}
	kind := kmsg.ConfigType(0)
	for _, word := range strings.Fields(idleKeys) {
		if name, dynamic := strings.CutSuffix(word, "*"); name != strings.ToUpper(name) {
			out[name] = setting{kind: kind, null: true, idle: true, dynamic: dynamic}
		} else if k, err := kmsg.ParseConfigType(word); err == nil {
			kind = k
		}
	}
	return out
}
