BEGIN TRANSACTION;
CREATE TABLE at_block (
	trial_id INTEGER NOT NULL, 
	problem INTEGER NOT NULL, 
	block INTEGER NOT NULL, 
	variant_us DOUBLE NOT NULL, 
	baseline_us DOUBLE NOT NULL, 
	CONSTRAINT pk_at_block PRIMARY KEY (trial_id, problem, block), 
	CONSTRAINT fk_at_block_trial_id FOREIGN KEY(trial_id) REFERENCES at_trial (id)
);
INSERT INTO "at_block" VALUES(1,0,0,49.5,101.0);
INSERT INTO "at_block" VALUES(1,0,1,50.0,100.0);
INSERT INTO "at_block" VALUES(1,0,2,50.5,99.0);
INSERT INTO "at_block" VALUES(4,0,0,297.0,101.0);
INSERT INTO "at_block" VALUES(4,0,1,300.0,100.0);
INSERT INTO "at_block" VALUES(4,0,2,303.0,99.0);
CREATE TABLE at_lease (
	name VARCHAR(64) NOT NULL, 
	host TEXT NOT NULL, 
	boot_id TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	pid_started TEXT NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	CONSTRAINT pk_at_lease PRIMARY KEY (name)
);
CREATE TABLE at_session (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	calibration TEXT NOT NULL, 
	environment TEXT NOT NULL, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	CONSTRAINT pk_at_session PRIMARY KEY (id), 
	CONSTRAINT fk_at_session_study_id FOREIGN KEY(study_id) REFERENCES at_study (id)
);
INSERT INTO "at_session" VALUES(1,1,'2026-11-21 17:02:25.886760','2026-11-21 17:02:25.930836','{"baselines":["flash"],"timings":[],"references":[],"versions":{}}','{"torch": "2.11"}','somewhere',25085);
CREATE TABLE at_study (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	space_name TEXT NOT NULL, 
	space_digest VARCHAR(64) NOT NULL, 
	space_document TEXT NOT NULL, 
	problems TEXT NOT NULL, 
	device TEXT NOT NULL, 
	cache VARCHAR(16) NOT NULL, 
	sampler TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_at_study PRIMARY KEY (id), 
	CONSTRAINT uq_at_study_name UNIQUE (name)
);
INSERT INTO "at_study" VALUES(1,'scalar-abc','scalar','895989825011d32626e5046bb2a322319771d92348518820188b957aa4f1d37c','{"path":"/opt/spaces/scalar.toml","title":"A scalar kernel","family":"sdpa","backend":"cpu","threads":"all","cache":"cold","problems":[{"op":"sdpa","batch":1,"heads":8,"seq_q":512,"seq_k":512,"head_dim":64,"dtype":"float32","causal":false}],"parameters":{"IMPL":{"values":["scalar"],"when":null},"BLOCK_M":{"values":[8,16,32,64],"when":null}},"constraints":[],"default":{"IMPL":"scalar","BLOCK_M":16}}','[{"op":"sdpa","batch":1,"heads":8,"seq_q":512,"seq_k":512,"head_dim":64,"dtype":"float32","causal":false}]','{"backend":"cpu","name":"A CPU","facts":{"CORES":2,"AVX512":true},"environment":{"torch":"2.11"}}','cold','evolution',1099511627776,'2026-11-21 17:02:25.877829');
CREATE TABLE at_trial (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	session_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	judged BOOLEAN NOT NULL, 
	variant_digest VARCHAR(64) NOT NULL, 
	artifact_digest TEXT, 
	program_hash TEXT, 
	extension_name TEXT, 
	original TEXT, 
	verdict VARCHAR(32) NOT NULL, 
	objective DOUBLE, 
	median_us DOUBLE, 
	baseline_us DOUBLE, 
	log_low DOUBLE, 
	log_high DOUBLE, 
	censored BOOLEAN NOT NULL, 
	fault_code TEXT, 
	fault_case TEXT, 
	fault_detail TEXT, 
	outcome TEXT NOT NULL, 
	seconds DOUBLE NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	revoked_at DATETIME, 
	revoked_reason TEXT, 
	CONSTRAINT pk_at_trial PRIMARY KEY (id), 
	CONSTRAINT fk_at_trial_study_id FOREIGN KEY(study_id) REFERENCES at_study (id), 
	CONSTRAINT fk_at_trial_session_id FOREIGN KEY(session_id) REFERENCES at_session (id), 
	CONSTRAINT uq_at_trial_study_id_number UNIQUE (study_id, number), 
	CONSTRAINT ck_at_trial_latency CHECK (objective IS NULL OR verdict IN ('measured', 'deduplicated', 'raced_out'))
);
INSERT INTO "at_trial" VALUES(1,1,1,0,1,'422be137c3c63b520d66f891b3979f5ebe2b534656d4e5a63ad68aa197cca3a3','1164402b4a0a93cc2099cda0802757e290a264c90c5f540d63fac0494cfd5f8d','p1','sdpa_scalar_1164402b4a0a',NULL,'measured',-6.93147180559945286226e-01,4.99999999999999928963e+01,1.0000000000000004263e+02,-7.1314718055994530399e-01,-6.73147180559945268463e-01,0,NULL,NULL,NULL,'{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":16}},"verdict":"measured","artifact":{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":16}},"dtype":"float32","head_dim":64,"causal":false,"lengths":null,"digest":"1164402b4a0a93cc2099cda0802757e290a264c90c5f540d63fac0494cfd5f8d","name":"sdpa_scalar_1164402b4a0a","path":"/nowhere/16.so","library_sha256":"d50dc36a3cdc18888495a429bcb1e2dcb3f71f26f866f7bbb65a93d0472265ca","program_hash":"p1","macros":{},"compiler":"g++ 13","flags":["-O3"],"architecture":"x86-64-v4","resources":{},"build_seconds":1.0},"gate":{"schema_version":2,"artifact":"1164402b4a0a93cc2099cda0802757e290a264c90c5f540d63fac0494cfd5f8d","causal":false,"streams":false,"bounded":false,"policy":{"tolerance":{"times":1.0,"strict":false,"reason":null},"cases":[],"without":[],"equals_sdpa":null},"identity":null,"checks":[{"code":"G0.identity","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G1.smoke","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G2.quick","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G2.sdpa","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.repeat","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.scale_v","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.permute","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.ones","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.offset","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.misaligned","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G5.matrix","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null}],"fault":null},"measurement":{"timings":[{"problem":{"op":"sdpa","batch":1,"heads":8,"seq_q":512,"seq_k":512,"head_dim":64,"dtype":"float32","causal":false},"baseline":"flash","variant_us":[49.5,50.0,50.5],"baseline_us":[101.0,100.0,99.0],"log_ratio":{"low":-0.7131471805599453,"median":-0.6931471805599453,"high":-0.6731471805599453,"level":0.95},"calls":[10,10]}],"objective":-0.6931471805599453,"cache":"cold","censored":false},"fault":null,"original":null,"seconds":{"build":1.5,"check":2.0,"measure":0.5},"stderr_tail":""}',4.0,'2026-11-21 17:02:25.903106',NULL,NULL);
INSERT INTO "at_trial" VALUES(2,1,1,1,1,'f0fe307ea45147a8c4fce68ef5d8d5f3b0b7b6689bb6702d01ef4d1575f7bdc1','23d6dd4ef4242b573d8aa336521ae8ba2cdaddf61230120f28922972454edeb5','p1','sdpa_scalar_23d6dd4ef424','1164402b4a0a93cc2099cda0802757e290a264c90c5f540d63fac0494cfd5f8d','deduplicated',-6.93147180559945286226e-01,4.99999999999999928963e+01,1.0000000000000004263e+02,-7.1314718055994530399e-01,-6.73147180559945268463e-01,0,NULL,NULL,NULL,'{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":32}},"verdict":"deduplicated","artifact":{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":32}},"dtype":"float32","head_dim":64,"causal":false,"lengths":null,"digest":"23d6dd4ef4242b573d8aa336521ae8ba2cdaddf61230120f28922972454edeb5","name":"sdpa_scalar_23d6dd4ef424","path":"/nowhere/32.so","library_sha256":"92a19c506c081ffdd9b2ea89443e8c90086f10e1444b1a646473f2ef985f539f","program_hash":"p1","macros":{},"compiler":"g++ 13","flags":["-O3"],"architecture":"x86-64-v4","resources":{},"build_seconds":1.0},"gate":null,"measurement":{"timings":[{"problem":{"op":"sdpa","batch":1,"heads":8,"seq_q":512,"seq_k":512,"head_dim":64,"dtype":"float32","causal":false},"baseline":"flash","variant_us":[49.5,50.0,50.5],"baseline_us":[101.0,100.0,99.0],"log_ratio":{"low":-0.7131471805599453,"median":-0.6931471805599453,"high":-0.6731471805599453,"level":0.95},"calls":[10,10]}],"objective":-0.6931471805599453,"cache":"cold","censored":false},"fault":null,"original":"1164402b4a0a93cc2099cda0802757e290a264c90c5f540d63fac0494cfd5f8d","seconds":{},"stderr_tail":""}',0.0,'2026-11-21 17:02:25.916668',NULL,NULL);
INSERT INTO "at_trial" VALUES(3,1,1,2,1,'a398a4f3e3005516bdf4cfa27a6bb5e504e1fac93c16133ff36b5fffa5648d18','71a59569d24822f15569244c4166b92e374ba68378223ea80de1dc5c91a1d1eb','d5edde9fabfe55363f68342d0ce2d0e034d1c6387492044a94aad69d7f0bb07e','sdpa_scalar_71a59569d248',NULL,'incorrect',NULL,NULL,NULL,NULL,NULL,0,'G2.T1','Q3 2x3x509x509 randn','max error 0.5','{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":64}},"verdict":"incorrect","artifact":{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":64}},"dtype":"float32","head_dim":64,"causal":false,"lengths":null,"digest":"71a59569d24822f15569244c4166b92e374ba68378223ea80de1dc5c91a1d1eb","name":"sdpa_scalar_71a59569d248","path":"/nowhere/64.so","library_sha256":"cfae6d6e9dbe9c24a77221831cf6f5ec886cd3be6c7126c00604180077241b79","program_hash":"d5edde9fabfe55363f68342d0ce2d0e034d1c6387492044a94aad69d7f0bb07e","macros":{},"compiler":"g++ 13","flags":["-O3"],"architecture":"x86-64-v4","resources":{},"build_seconds":1.0},"gate":null,"measurement":null,"fault":{"verdict":"incorrect","code":"G2.T1","detail":"max error 0.5","case":"Q3 2x3x509x509 randn","system":null},"original":null,"seconds":{},"stderr_tail":""}',0.0,'2026-11-21 17:02:25.925639',NULL,NULL);
INSERT INTO "at_trial" VALUES(4,1,1,3,1,'6a39e35c37aac503104656f05862c8441b523daa026c95b4f9a9c60090c9d622','7e0a83faf3b79e86b9e3bf0601ce2a59f0e8283494fbc521af80f793041e32ce','10336b370808c97729dbbd65f3d0f48ae8672f892803113db6cfecd0c3187dca','sdpa_scalar_7e0a83faf3b7',NULL,'raced_out',1.0986122886681097821e+00,2.9999999999999994317e+02,1.0000000000000004263e+02,1.07861228866810976434e+00,1.11861228866810979987e+00,1,NULL,NULL,NULL,'{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":8}},"verdict":"raced_out","artifact":{"variant":{"family":"sdpa","backend":"cpu","impl":"scalar","parameters":{"BLOCK_M":8}},"dtype":"float32","head_dim":64,"causal":false,"lengths":null,"digest":"7e0a83faf3b79e86b9e3bf0601ce2a59f0e8283494fbc521af80f793041e32ce","name":"sdpa_scalar_7e0a83faf3b7","path":"/nowhere/8.so","library_sha256":"feeb3e9edf692c3228c44a696941cc727c221e2f33759ffce0bf93f6734b0670","program_hash":"10336b370808c97729dbbd65f3d0f48ae8672f892803113db6cfecd0c3187dca","macros":{},"compiler":"g++ 13","flags":["-O3"],"architecture":"x86-64-v4","resources":{},"build_seconds":1.0},"gate":{"schema_version":2,"artifact":"7e0a83faf3b79e86b9e3bf0601ce2a59f0e8283494fbc521af80f793041e32ce","causal":false,"streams":false,"bounded":false,"policy":{"tolerance":{"times":1.0,"strict":false,"reason":null},"cases":[],"without":[],"equals_sdpa":null},"identity":null,"checks":[{"code":"G0.identity","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G1.smoke","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G2.quick","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G2.sdpa","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.repeat","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.scale_v","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.permute","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.ones","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.offset","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G3.misaligned","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null},{"code":"G5.matrix","status":"pass","seconds":0.1,"launches":0,"cases":[],"differs":null,"stale":false,"note":null}],"fault":null},"measurement":{"timings":[{"problem":{"op":"sdpa","batch":1,"heads":8,"seq_q":512,"seq_k":512,"head_dim":64,"dtype":"float32","causal":false},"baseline":"flash","variant_us":[297.0,300.0,303.0],"baseline_us":[101.0,100.0,99.0],"log_ratio":{"low":1.0786122886681098,"median":1.0986122886681098,"high":1.1186122886681098,"level":0.95},"calls":[10,10]}],"objective":1.0986122886681098,"cache":"cold","censored":true},"fault":null,"original":null,"seconds":{"build":1.5,"check":2.0,"measure":0.5},"stderr_tail":""}',4.0,'2026-11-21 17:02:25.927552',NULL,NULL);
CREATE TABLE at_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT at_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "at_version" VALUES('0001');
CREATE INDEX ix_at_session_study_id ON at_session (study_id);
CREATE UNIQUE INDEX uq_at_trial_judged_variant ON at_trial (study_id, variant_digest) WHERE judged;
CREATE INDEX ix_at_trial_study_id_objective_number ON at_trial (study_id, objective, number);
CREATE INDEX ix_at_trial_study_id_program_hash ON at_trial (study_id, program_hash);
CREATE INDEX ix_at_trial_study_id_recorded_at ON at_trial (study_id, recorded_at);
CREATE INDEX ix_at_trial_session_id ON at_trial (session_id);
COMMIT;
